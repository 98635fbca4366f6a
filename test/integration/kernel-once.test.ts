/** once() against real Postgres: one effect and one answer a key, whoever asks, however often and at the same time. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { fingerprintOf, type IdempotencyScope, once } from '#db/idempotency.ts';
import { mutate, type Tx } from '#db/mutate.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { installFate } from '#kit/fate.ts';

let t: TestDatabase;
beforeAll(async () => {
  t = await testDatabase();
  await installFate(t.db);
});
afterAll(() => t?.close());
beforeEach(() => t.db.query("select setval('runs', 1, false)"));

const code = (c: string) => expect.objectContaining({ code: c });
const runs = async () => (await t.db.query<{ n: number }>("select nextval('runs') as n"))[0]!.n - 1;
async function counts() {
  const [row] = await t.db.query<{ sites: number; events: number; keys: number }>(
    `select (select count(*) from sites) as sites, (select count(*) from events) as events,
       (select count(*) from idempotency_keys) as keys`,
  );
  return row!;
}

const scope = (over: Partial<IdempotencyScope> = {}): IdempotencyScope => ({
  tenantId: 'tnt_a',
  identityId: 'idn_a',
  operation: 'sites.create',
  key: crypto.randomUUID(),
  ...over,
});
const print = (input: Record<string, number>) => fingerprintOf('sites.create', input);
const make = async (at: IdempotencyScope, input: Record<string, number>, before?: (tx: Tx) => Promise<unknown>) => {
  const fingerprint = await print(input);
  return mutate({ db: t.db, actor: 'test', admission: { requestId: 'req-1' } }, (tx) =>
    once(tx, at, fingerprint, async () => {
      await tx.query("select nextval('runs')");
      const id = newId('site');
      await tx.query('insert into sites (id, tenant_id, name) values ($1, $2, $1)', [id, at.tenantId]);
      tx.emit({ type: 'site.created', tenantId: at.tenantId, kind: 'site', id, data: { id } });
      await before?.(tx);
      return { id };
    }),
  );
};

test('twenty at once with one key: one effect, one answer', async () => {
  const at = scope();
  const before = await counts();
  const answers = await Promise.all(Array.from({ length: 20 }, () => make(at, { n: 1 })));
  expect(new Set(answers.map((a) => a.id)).size).toBe(1);
  expect(await runs()).toBe(1);
  const after = await counts();
  expect(after).toEqual({ sites: before.sites + 1, events: before.events + 1, keys: before.keys + 1 });
});

test('equal input is the same request whatever the order of its members; another input is refused', async () => {
  const at = scope();
  const first = await make(at, { a: 1, b: 2 });
  expect(await make(at, { b: 2.0, a: 1 })).toEqual(first);
  const before = await counts();
  await expect(make(at, { a: 1, b: 3 })).rejects.toEqual(code('IDEMPOTENCY_MISMATCH'));
  expect(await counts()).toEqual(before);
});

test.each<[string, Partial<IdempotencyScope>]>([
  ['tenant', { tenantId: 'tnt_b' }],
  ['caller', { identityId: 'idn_b' }],
  ['operation', { operation: 'pools.create' }],
  ['key', { key: 'another' }],
])('the same key of another %s is another request', async (_, over) => {
  const at = scope();
  const first = await make(at, { n: 1 });
  expect((await make({ ...at, ...over }, { n: 1 })).id).not.toBe(first.id);
});

test('an answer without its effect, or the reverse, cannot exist', async () => {
  const at = scope();
  for (const fate of ['killed', 'XX000']) {
    const before = await counts();
    await expect(make(at, { n: 1 }, (tx) => tx.query('insert into fate values ($1)', [fate]))).rejects.toThrow();
    expect(await counts()).toEqual(before);
  }
  const { id } = await make(at, { n: 1 });
  expect(await t.db.query('select 1 from sites where id = $1', [id])).toHaveLength(1);
});

test('who waits for another with the same key runs itself when that one fails', async () => {
  const at = scope();
  let fail = () => {};
  let begun = () => {};
  const begin = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const failing = make(at, { n: 1 }, () => {
    begun();
    return new Promise((_, reject) => {
      fail = () => reject(new Error('gives up'));
    });
  });
  await begin;
  const waiting = make(at, { n: 1 });
  const blocked = () =>
    t.db.query("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'");
  await expect.poll(async () => (await blocked()).length).toBe(1);
  fail();
  await expect(failing).rejects.toThrow();
  expect(await waiting).toMatchObject({ id: expect.stringMatching(/^site_/) });
  expect(await runs()).toBe(2);
});
