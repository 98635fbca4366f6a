/**
 * Lists under change, through the API: rows with one time of creation, rows microseconds apart, rows that go and come
 * between the pages. What was there all the while is seen exactly once, and a cursor opens its own list alone.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { OPERATIONS } from '#core/operations.ts';
import { type ApiName, type TestApi, testApi } from '#kit/api.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { seedFleet } from '#kit/fleet.ts';
import { insertRows, LISTS, type ListGround, type ListRow } from '#kit/lists.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let alice: TestTenant;
let bob: TestTenant;
let ground: ListGround;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  await seedRoot(t.db);
  [alice, bob] = [await seedTenant(t.db, 'alice'), await seedTenant(t.db, 'bob')];
  const { siteId, poolId, nodeIds } = await seedFleet(t.db, { tenantId: alice.id, nodes: 1, gpus: 0 });
  ground = { tenantId: alice.id, siteId, poolId, nodeId: nodeIds[0]!, webhookId: newId('webhook') };
  for (const [id, tenantId] of [
    [ground.webhookId, alice.id],
    [newId('webhook'), bob.id],
  ]) {
    await t.db.query(
      `insert into webhooks (id, tenant_id, url, event_types, enabled, secrets) values ($1, $2, 'https://x.test', '{*}', false, '[]')`,
      [id!, tenantId!],
    );
  }
});
afterAll(() => t?.close());

interface Page {
  readonly items: Record<string, string>[];
  readonly nextCursor?: string;
}
const page = (name: ApiName, input: Record<string, unknown>, who = alice) =>
  api.call(who, name, input as never) as Promise<unknown> as Promise<Page>;

/** So many rows with one time of creation, and fifty between 123456 and 123999 microseconds of the second after. */
function rowsAt(second: number, equal: number, make: () => string): ListRow[] {
  const at = (s: number, us: number) =>
    `2026-01-01T00:00:${String(s).padStart(2, '0')}.${String(us).padStart(6, '0')}Z`;
  return [
    ...Array.from({ length: equal }, () => ({ id: make(), at: at(second, 0) })),
    ...Array.from({ length: 50 }, (_, i) => ({ id: make(), at: at(second + 1, 123_456 + i * 11) })),
  ];
}

const refused = { code: 'INVALID_CURSOR', status: 400 };
const flip = (cursor: string, at: number) =>
  cursor.slice(0, at) + (cursor[at] === 'A' ? 'B' : 'A') + cursor.slice(at + 1);

test('every list that takes a cursor is tried here', () => {
  const paged = (Object.values(OPERATIONS) as unknown as Operation[])
    .filter((o) => o.stream === undefined && Object.hasOwn(o.query?.shape ?? {}, 'cursor'))
    .map((o) => o.name);
  expect(paged.sort()).toEqual([...Object.keys(LISTS), 'events.list'].sort());
});

describe.each(Object.entries(LISTS))('%s', (key, list) => {
  const name = key as ApiName;
  const base = () => list.input?.(ground) ?? {};
  const idsOf = (p: Page) => p.items.map((i) => i[list.shownAs ?? 'id']!);
  const insert = (rows: readonly ListRow[]) => insertRows(t, list, ground, rows);

  // A page of one row costs a request a row: the long list stands for all with the nodes.
  const equal = name === 'nodes.list' ? 500 : 60;
  const ways = ['asc', 'desc'].flatMap((order) => [1, 7, 100].map((limit) => [order, limit] as const));
  test.each(ways)('%s by %i: each row once, whatever goes and comes between the pages', async (order, limit) => {
    const rows = rowsAt(10, equal, list.newId);
    await insert(rows);
    const stays = new Set(rows.map((r) => r.id));
    const seen: string[] = [];
    const added = { behind: [] as string[], ahead: [] as string[] };
    let cursor: string | undefined;
    for (let n = 0; ; n++) {
      const got = await page(name, { ...base(), order, limit, ...(cursor === undefined ? {} : { cursor }) });
      expect(got.items.length).toBeLessThanOrEqual(limit);
      seen.push(...idsOf(got));
      cursor = got.nextCursor;
      if (cursor === undefined) break;
      expect(got.items.length).toBe(limit);
      if (n % Math.ceil(60 / limit) === 0) {
        // The very row that the cursor stands on goes; one comes behind it, and one ahead.
        const last = idsOf(got).at(-1)!;
        if (stays.delete(last)) await t.db.query(list.remove, [last]);
        const [early, late] = [list.newId(), list.newId()];
        await insert([
          { id: early, at: '2000-01-01T00:00:00Z' },
          { id: late, at: '2100-01-01T00:00:00Z' },
        ]);
        added.behind.push(order === 'asc' ? early : late);
        added.ahead.push(order === 'asc' ? late : early);
      }
    }
    const count = new Map<string, number>();
    for (const id of seen) count.set(id, (count.get(id) ?? 0) + 1);
    expect([...count].filter(([, n]) => n !== 1)).toEqual([]);
    expect([...stays].filter((id) => !count.has(id))).toEqual([]);
    expect(added.behind.filter((id) => count.has(id))).toEqual([]);
    expect(added.ahead.filter((id) => !count.has(id))).toEqual([]);
    expect(added.ahead.length).toBeGreaterThan(0);
    const times = new Map(rows.map((r) => [r.id, r.at]));
    const walked = seen.flatMap((id) => times.get(id) ?? []);
    expect(walked).toEqual(order === 'asc' ? [...walked].sort() : [...walked].sort().reverse());
    for (const id of [...stays, ...added.behind, ...added.ahead]) await t.db.query(list.remove, [id]);
  });

  test('a cursor that was changed, or is of another tenant, filter, order or list, gives no data', async () => {
    const rows = rowsAt(20, 5, list.newId);
    await insert(rows);
    const { nextCursor: cursor } = await page(name, { ...base(), limit: 3 });
    expect(cursor).toBeDefined();
    for (let at = 0; at < cursor!.length; at += 3) {
      await expect(page(name, { ...base(), cursor: flip(cursor!, at) })).rejects.toMatchObject(refused);
    }
    for (const junk of [cursor!.slice(0, -4), `${cursor}AAAA`, 'x', '!', '%00', cursor!.repeat(2)]) {
      await expect(page(name, { ...base(), cursor: junk })).rejects.toMatchObject(refused);
    }
    await expect(page(name, { ...base(), cursor: '' })).rejects.toMatchObject({
      code: 'INVALID_REQUEST',
      body: { errors: [{ field: 'cursor' }] },
    });
    const order = { ...base(), order: 'desc', cursor };
    await expect(page(name, order)).rejects.toMatchObject(refused);
    await expect(page(name, { ...base(), ...list.filter(ground), cursor })).rejects.toMatchObject(refused);
    const theirs = name === 'webhooks.deliveries' ? { code: 'NOT_FOUND' } : refused;
    await expect(page(name, { ...base(), cursor }, bob)).rejects.toMatchObject(theirs);
    const elsewhere = name === 'sites.list' ? 'webhooks.list' : 'sites.list';
    await expect(page(elsewhere, { cursor })).rejects.toMatchObject(refused);
    const otherDeployment = testApi(t.db, { cursorKey: new Uint8Array(32).fill(8) });
    await expect(otherDeployment.call(alice, name, { ...base(), cursor } as never)).rejects.toMatchObject(refused);
    // Another length of page is the same list.
    const rest = idsOf(await page(name, { ...base(), limit: 200, cursor }));
    expect(rest.filter((id) => rows.some((r) => r.id === id))).toHaveLength(rows.length - 3);
    for (const { id } of rows) await t.db.query(list.remove, [id]);
  });
});

describe('events.list', () => {
  const emit = (who: TestTenant, subject: string) =>
    t.db.query("select emit('site.created', $1, 'site', $2, '{}')", [who.id, subject]);
  /** Readable is what stands below the oldest running transaction, be it of another test. */
  const readable = async () => {
    const [last] = await t.db.query<{ xid: string }>('select max(xid)::text as xid from events');
    const passed = () => t.db.query('select 1 where pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8', [last!.xid]);
    await expect.poll(async () => (await passed()).length, { timeout: 30_000, interval: 10 }).toBe(1);
  };
  const subjects = (p: Page) => p.items.map((e) => (e['subject'] as unknown as { id: string }).id);

  test.each([1, 7, 100])('by %i: each event once, in order, and the cursor goes on where it ended', async (limit) => {
    await t.db.query('delete from events');
    const wanted = Array.from({ length: 120 }, (_, i) => `s${i}`);
    for (const s of wanted) {
      await emit(alice, s);
      await emit(bob, `bobs-${s}`);
    }
    await readable();
    const seen: string[] = [];
    let cursor: string | undefined;
    for (let n = 0; ; n++) {
      const got = await page('events.list', { limit, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...subjects(got));
      cursor = got.nextCursor;
      if (got.items.length === 0) break;
      if (n % 10 === 0) await t.db.query('delete from events where subject_id = $1', [subjects(got).at(-1)!]);
    }
    expect(seen).toEqual(wanted);
    await emit(alice, 'newer');
    await readable();
    expect(subjects(await page('events.list', { limit, cursor: cursor! }))).toEqual(['newer']);
    await expect(page('events.list', { cursor: cursor! }, bob)).rejects.toMatchObject(refused);
    await expect(page('sites.list', { cursor: cursor! })).rejects.toMatchObject(refused);
    await expect(page('events.list', { cursor: flip(cursor!, 5) })).rejects.toMatchObject(refused);
  });
});
