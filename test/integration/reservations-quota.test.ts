/**
 * Quota under failure, through the API: whatever goes wrong at whatever moment, what is charged is what is held, and
 * nobody ever reads less than zero or more than the limit.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemClock } from '#core/kernel/time.ts';
import { type CallOptions, Refused, type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { installFate } from '#kit/fate.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

const LIMIT = 2;
let t: TestDatabase;
let api: TestApi;
let reconcile: Controllers;
let owner: TestTenant;
let guest: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase({ max: 20 });
  api = testApi(t.db);
  reconcile = controllers(t.db);
  await seedRoot(t.db);
  owner = await seedTenant(t.db, 'owner');
  await installFate(t.db);
  // Whoever charges or refunds while `doom` has a row meets that fate in its COMMIT, and the row is used up.
  await t.db.transaction((tx) =>
    tx.script(`
      create table doom (n int primary key, what text not null);
      create function doom_of_charge() returns trigger language plpgsql as $$
      begin
        insert into fate select what from doom order by n limit 1;
        return null;
      end $$;
      create trigger quotas_doom after update on quotas for each row execute function doom_of_charge();`),
  );
});
afterAll(() => t?.close());
beforeEach(async () => {
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 1, gpus: 4 });
  // May reserve for up to an hour, whatever else.
  guest = await seedTenant(t.db, 'guest', {
    version: 1,
    statements: [
      { effect: 'allow', actions: ['*'], resources: ['*'] },
      {
        effect: 'deny',
        actions: ['compute:reservations:create'],
        resources: ['*'],
        conditions: { NumericGreaterThan: { 'resource.durationSeconds': 3600 } },
      },
    ],
  });
  await offerPool(t.db, fleet, guest.id, LIMIT);
});

const reserve = (count: number, durationSeconds = 3600, o: CallOptions = {}) =>
  api.call(
    guest,
    'reservations.create',
    { body: { poolId: fleet.poolId, devices: [{ class: 'gpu', count }], durationSeconds } },
    o,
  );
const release = (id: string, o: CallOptions = {}) => api.call(guest, 'reservations.release', { id }, o);
const used = async () =>
  (await t.db.query<{ used: number }>('select used from quotas where tenant_id = $1', [guest.id]))[0]!.used;
const machinesLetGo = async () => {
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
};
const codes = async (calls: Promise<unknown>[]) =>
  (await Promise.allSettled(calls)).map((c) =>
    c.status === 'fulfilled' ? 'ok' : c.reason instanceof Refused ? c.reason.code : String(c.reason),
  );
const times = <T>(n: number, make: (i: number) => T) => Array.from({ length: n }, (_, i) => make(i));

/** The stored use is the recount, nothing is wrong anywhere, and the whole quota can be had and given back. */
async function wholeQuotaIsThere(): Promise<void> {
  expect(await used()).toBe(0);
  expect(await bookErrors(t.db)).toEqual([]);
  const all = await reserve(LIMIT);
  expect(await used()).toBe(LIMIT);
  await release(all.id);
  await machinesLetGo();
  expect(await used()).toBe(0);
  expect(await bookErrors(t.db)).toEqual([]);
}

test('ten creates that a policy refuses on the draft charge nothing', async () => {
  expect(await codes(times(10, () => reserve(1, 7200)))).toEqual(times(10, () => 'PERMISSION_DENIED'));
  // Decided ahead for a caller who was admitted here a moment ago: refused all the same.
  const one = await reserve(1);
  expect(await codes(times(10, () => reserve(1, 7200)))).toEqual(times(10, () => 'PERMISSION_DENIED'));
  expect(await used()).toBe(1);
  await release(one.id);
  await machinesLetGo();
  await wholeQuotaIsThere();
});

test('ten creates that no node can hold, and ten past the quota, charge nothing', async () => {
  const ownersBody = { poolId: fleet.poolId, devices: [{ class: 'gpu' as const, count: 3 }], durationSeconds: 600 };
  const hog = await api.call(owner, 'reservations.create', { body: ownersBody });
  for (const known of [false, true]) {
    expect(await codes(times(10, () => reserve(2)))).toEqual(times(10, () => 'CAPACITY_UNAVAILABLE'));
    expect(await used()).toBe(0);
    if (known) break;
    const one = await reserve(1);
    await release(one.id);
    await machinesLetGo();
  }
  await api.call(owner, 'reservations.release', { id: hog.id });
  await machinesLetGo();
  expect(await codes(times(10, () => reserve(3)))).toEqual(times(10, () => 'QUOTA_EXCEEDED'));
  await wholeQuotaIsThere();
});

test.each(['killed', 'XX000'])(
  'five creates whose COMMIT is %s after the charge leave nothing, and can be repeated',
  async (what) => {
    const keys = times(5, () => crypto.randomUUID());
    for (const [i, key] of keys.entries()) {
      await t.db.query('insert into doom values (1, $1)', [what]);
      const [code] = await codes([reserve(1, 600, { key })]);
      expect(code).toBe(what === 'killed' ? 'UNAVAILABLE' : 'INTERNAL');
      await t.db.query('delete from doom');
      expect(await used()).toBe(0);
      expect(await bookErrors(t.db)).toEqual([]);
      if (i > 0) continue;
      const made = await reserve(1, 600, { key });
      expect(await reserve(1, 600, { key })).toEqual(made);
      expect(await used()).toBe(1);
      await release(made.id);
      await machinesLetGo();
    }
    await wholeQuotaIsThere();
  },
);

test('a release whose refund is lost in the COMMIT is done again, and refunds once', async () => {
  const made = await reserve(2);
  await release(made.id);
  await reconcile.settle();
  await machinesObserve(t.db);
  await t.db.query(`insert into doom values (1, 'killed')`);
  await expect(reconcile.settle()).rejects.toThrow(/UNAVAILABLE/);
  expect(await used()).toBe(2);
  expect(await bookErrors(t.db)).toEqual([]);
  await t.db.query('delete from doom');
  await t.db.query('update work_queue set not_before = compute_now()');
  await reconcile.settle();
  expect(await api.call(guest, 'reservations.get', { id: made.id })).toMatchObject({ state: 'released' });
  await wholeQuotaIsThere();
});

test('released ten times at once, again after it is over, and by the end of its time: refunded once', async () => {
  const made = await reserve(2);
  expect(new Set(await codes(times(10, () => release(made.id))))).toEqual(new Set(['ok']));
  expect(await used()).toBe(2);
  await machinesLetGo();
  expect(await used()).toBe(0);
  for (let i = 0; i < 3; i++) expect(await release(made.id)).toMatchObject({ state: 'released' });
  await t.db.query(`select wake('reservations', $1)`, [made.id]);
  await Promise.all([reconcile.settle(), reconcile.settle()]);
  await Promise.all(times(5, () => t.db.query('select allocation_settle($1)', [made.allocations[0]!.id])));
  await wholeQuotaIsThere();
});

test('a draft that is released while it is being admitted is either held or dropped', async () => {
  for (let i = 0; i < 12; i++) {
    const key = crypto.randomUUID();
    await t.db.query('update quotas set limit_count = 0 where tenant_id = $1', [guest.id]);
    expect(await codes([reserve(1, 600, { key })])).toEqual(['QUOTA_EXCEEDED']);
    await t.db.query('update quotas set limit_count = $2 where tenant_id = $1', [guest.id, LIMIT]);
    const { items } = await api.call(guest, 'reservations.list', { state: 'draft' });
    expect(items).toHaveLength(1);
    const [made, dropped] = await Promise.allSettled([reserve(1, 600, { key }), release(items[0]!.id)]);
    expect([made.status, dropped.status]).toEqual(['fulfilled', 'fulfilled']);
    const now = await api.call(guest, 'reservations.get', { id: items[0]!.id });
    expect(['abandoned', 'releasing']).toContain(now.state);
    expect(await used()).toBe(now.state === 'abandoned' ? 0 : 1);
    expect(await bookErrors(t.db)).toEqual([]);
    await machinesLetGo();
  }
  await wholeQuotaIsThere();
});

test('in a storm of creates, releases and kills nobody reads less than zero or more than the limit', async () => {
  let running = true;
  const read: number[] = [];
  const watcher = (async () => {
    while (running) {
      read.push(await used());
      await systemClock.sleep(2);
    }
  })();
  const machines = (async () => {
    while (running) {
      await machinesObserve(t.db);
      await reconcile.settle().catch((e: Error) => {
        if (!e.message.includes('UNAVAILABLE')) throw e;
      });
      await t.db.query('update work_queue set not_before = compute_now() where last_error is not null');
      await systemClock.sleep(5);
    }
  })();
  const killer = (async () => {
    while (running) {
      await systemClock.sleep(60);
      await t.db.query(`insert into doom values (1, 'killed') on conflict do nothing`);
      await systemClock.sleep(5);
      await t.db.query('delete from doom');
    }
  })();
  const client = async () => {
    for (let i = 0; i < 12; i++) {
      const key = crypto.randomUUID();
      const [code] = await codes([reserve(1, 600, { key }).then((made) => release(made.id))]);
      expect(['ok', 'QUOTA_EXCEEDED', 'UNAVAILABLE', 'CAPACITY_UNAVAILABLE']).toContain(code);
      await systemClock.sleep(5);
    }
  };
  await Promise.all(times(8, client));
  running = false;
  await Promise.all([watcher, machines, killer]);
  await t.db.query('delete from doom');
  expect(read.length).toBeGreaterThan(20);
  expect(read.filter((n) => n < 0 || n > LIMIT)).toEqual([]);
  expect(new Set(read).size).toBeGreaterThan(1);
  // What was admitted under an answer that got lost is held until it is released, as its owner sees in the list.
  for (const state of ['booked', 'active'] as const) {
    for (const r of (await api.call(guest, 'reservations.list', { state })).items) await release(r.id);
  }
  await t.db.query('update work_queue set not_before = compute_now() where last_error is not null');
  await machinesLetGo();
  await wholeQuotaIsThere();
});

test('the first charges of a resource, all at once: each finds the row that another just wrote', async () => {
  for (let round = 0; round < 40; round++) {
    const resource = `first-${round}`;
    const charges = Array.from({ length: 8 }, () =>
      t.db.query('select quota_charge($1, $2, $3, 1)', [owner.id, fleet.poolId, resource]),
    );
    await Promise.all(charges);
    const [row] = await t.db.query<{ used: number }>('select used from quotas where tenant_id = $1 and resource = $2', [
      owner.id,
      resource,
    ]);
    expect(row!.used).toBe(8);
  }
});
