/** The outbox against real Postgres: a reader sees each event exactly once, in order, however late its writer commits. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { seededRandom } from '#core/kernel/random.ts';
import { systemClock } from '#core/kernel/time.ts';
import { type EventRow, OUTBOX_START, type OutboxCursor, outboxEnd, readOutbox, readTenantEvents } from '#db/outbox.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';

let t: TestDatabase;
beforeAll(async () => {
  t = await testDatabase({ max: 24 });
});
afterAll(() => t?.close());

const TENANTS = ['tnt_a', 'tnt_b'] as const;
const position = (e: EventRow): OutboxCursor => ({ xid: e.xid, seq: e.seq });
const inOrder = (a: EventRow, b: EventRow) =>
  BigInt(a.xid) < BigInt(b.xid) || (a.xid === b.xid && a.seq < b.seq) ? -1 : 1;

const lastXid = async () => (await t.db.query<{ xid: string }>('select max(xid)::text as xid from events'))[0]!.xid;
async function nothingRuns(upTo: string): Promise<void> {
  const passed = () => t.db.query('select 1 where pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8', [upTo]);
  await expect.poll(async () => (await passed()).length, { timeout: 30_000, interval: 10 }).toBe(1);
}

type ReadPage = (after: OutboxCursor, limit: number) => Promise<EventRow[]>;

/** Reads on, page after page, until told that the writers are done and there is no more. */
async function follow(read: ReadPage, from: OutboxCursor, limit: number, done: () => boolean): Promise<EventRow[]> {
  const seen: EventRow[] = [];
  let after = from;
  for (;;) {
    const last = done();
    const page = await read(after, limit);
    seen.push(...page);
    const end = page.at(-1);
    if (end !== undefined) after = position(end);
    else if (last) return seen;
  }
}

test('many writers that commit late, roll back or crash, and readers that page all the time', async () => {
  const random = seededRandom(11);
  const from = await outboxEnd(t.db);
  const written = new Map<string, string[]>(TENANTS.map((tenant) => [tenant, []]));
  let running = true;

  const writer = async (n: number) => {
    const mine = random.fork(`writer-${n}`);
    for (let i = 0; i < 25; i++) {
      const tenant = mine.pick([...TENANTS]);
      const subjects = Array.from({ length: mine.int(1, 3) }, () => newId('site') as string);
      const ends = mine.next();
      try {
        await t.db.transaction(async (tx) => {
          for (const id of subjects) {
            await tx.query("select emit('site.created', $1, 'site', $2, '{}')", [tenant, id]);
            await systemClock.sleep(mine.int(0, 12));
          }
          if (ends < 0.15) throw new Error('rolls back');
          if (ends < 0.2) await tx.query('select pg_terminate_backend(pg_backend_pid())').catch(() => {});
          await systemClock.sleep(mine.int(0, 40));
        });
        if (ends < 0.2) continue;
        written.get(tenant)!.push(...subjects);
      } catch (e) {
        if (ends >= 0.2) throw e;
      }
    }
  };
  const done = () => !running;
  const all = (limit: number) => follow((after, n) => readOutbox(t.db, after, n), from, limit, done);
  const one = (tenant: string) => follow((a, n) => readTenantEvents(t.db, tenant, a, [], n), from, 5, done);
  const readers = Promise.all([all(3), all(100), ...TENANTS.map(one)]);
  await Promise.all(Array.from({ length: 12 }, (_, n) => writer(n)));
  // What stands below the oldest running transaction is readable; another test's, or a dying writer's, may still run.
  await nothingRuns(await lastXid());
  running = false;
  const [small, large, ...byTenant] = await readers;

  const everything = [...written.values()].flat().sort();
  expect(everything.length).toBeGreaterThan(300);
  for (const seen of [small!, large!]) {
    expect(seen.map((e) => e.subject_id).sort()).toEqual(everything);
    expect(seen).toEqual([...seen].sort(inOrder));
  }
  TENANTS.forEach((tenant, i) => {
    expect(byTenant[i]!.map((e) => e.subject_id).sort()).toEqual([...written.get(tenant)!].sort());
    expect(byTenant[i]!.every((e) => e.tenant_id === tenant)).toBe(true);
  });
  // Late commits there were: in some places a lower sequence number stands behind a higher one.
  expect(large!.some((e, i) => i > 0 && e.seq < large![i - 1]!.seq)).toBe(true);
});

test('an event of a transaction that still runs holds back what committed after it, and then comes before it', async () => {
  const from = await outboxEnd(t.db);
  let commit = () => {};
  const held = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let written = () => {};
  const isWritten = new Promise<void>((resolve) => {
    written = resolve;
  });
  const late = t.db.transaction(async (tx) => {
    await tx.query("select emit('site.created', 'tnt_a', 'site', 'late', '{}')");
    written();
    await held;
  });
  await isWritten;
  await t.db.query("select emit('site.created', 'tnt_a', 'site', 'early', '{}')");
  expect(await readOutbox(t.db, from, 10)).toEqual([]);
  // A watcher that starts here has seen neither.
  const here = await outboxEnd(t.db);
  commit();
  await late;
  await nothingRuns(await lastXid());
  for (const start of [from, here]) {
    expect((await readOutbox(t.db, start, 10)).map((e) => e.subject_id)).toEqual(['late', 'early']);
  }
});

test('a family of types, several types, and none', async () => {
  const from = await outboxEnd(t.db);
  for (const type of ['site.created', 'pool.created', 'pool.deleted', 'poolside.created']) {
    await t.db.query("select emit($1, 'tnt_c', 'x', 'y', '{}')", [type]);
  }
  await nothingRuns(await lastXid());
  const typesOf = async (types: string[]) =>
    (await readTenantEvents(t.db, 'tnt_c', from, types, 10)).map((e) => e.type);
  expect(await typesOf(['pool.*'])).toEqual(['pool.created', 'pool.deleted']);
  expect(await typesOf(['site.created', 'pool.deleted'])).toEqual(['site.created', 'pool.deleted']);
  expect(await typesOf(['*'])).toHaveLength(4);
  expect(await typesOf([])).toHaveLength(4);
  expect(await typesOf(['node.*'])).toEqual([]);
  expect(await readOutbox(t.db, OUTBOX_START, 2)).toHaveLength(2);
});

test('transactions are ordered as numbers, also where one has a digit more', async () => {
  for (const xid of ['9', '10', '99', '100']) {
    await t.db.query(
      `insert into events (xid, type, tenant_id, subject_kind, subject_id, data)
       select $1::xid8, 'site.created', 'tnt_d', 'site', $1 || '/' || i, '{}' from generate_series(1, 2) i`,
      [xid],
    );
  }
  const wanted = ['9/1', '9/2', '10/1', '10/2', '99/1', '99/2', '100/1', '100/2'];
  const reads: ReadPage[] = [(a, n) => readOutbox(t.db, a, n), (a, n) => readTenantEvents(t.db, 'tnt_d', a, [], n)];
  for (const read of reads) {
    for (const limit of [1, 3, 100]) {
      const seen = await follow(read, OUTBOX_START, limit, () => true);
      expect(seen.filter((e) => e.tenant_id === 'tnt_d').map((e) => e.subject_id)).toEqual(wanted);
    }
  }
});
