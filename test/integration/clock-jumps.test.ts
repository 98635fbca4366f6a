/**
 * A fleet at work while the clock of the control plane is four hundred days ahead for ninety seconds, and afterwards an
 * outage of three hours: nothing ends, is deleted or billed before its time, nothing stays dead afterwards, and what
 * really ended does end by itself.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Log } from '#core/kernel/log.ts';
import { systemClock, toMillis } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { type NodeHost, nodeHost } from '#reconcilers/node-host.ts';

const [MINUTE, HOUR, DAY] = [60, 3600, 86_400];
const YEARS_AHEAD = 400 * DAY;
const TICK = 10;

let t: TestDatabase;
let clock: TestClock;
let api: TestApi;
let owner: TestTenant;
let mortal: TestTenant;
let fleet: Fleet;
let host: NodeHost;
const said: string[] = [];
const note: Log['warn'] = (about, message) => void said.push(`${message} ${JSON.stringify(about)}`);
const log: Log = { debug() {}, info() {}, warn: note, error: note };
const hostNamed = (holder: string) =>
  nodeHost({ db: t.db, reconcilers: RECONCILERS, clock: systemClock, log, random: () => 0.5, holder });

beforeAll(async () => {
  t = await testDatabase();
  clock = await takeClock(t.db);
  api = testApi(t.db);
  await seedRoot(t.db);
  [owner, mortal] = [await seedTenant(t.db, 'owner'), await seedTenant(t.db, 'mortal')];
  // One whose session outlives the jump, and one whose does not.
  await t.db.query(`update iam.credentials set expires_at = compute_now() + interval '9 years' where tenant_id = $1`, [
    owner.id,
  ]);
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 100, gpus: 2 });
  host = hostNamed('main');
});
afterAll(() => t?.close());

/** Names of reservations -> their ids; and which of them their tenants keep alive. */
const ids: Record<string, string> = {};
const kept = new Set<string>();
const gateways = new Set(['kit', 'doomed']);

async function reserve(name: string, durationSeconds: number, leaseSeconds?: number): Promise<void> {
  const made = await api.call(owner, 'reservations.create', {
    body: {
      poolId: fleet.poolId,
      devices: [{ class: 'gpu', count: 2 }],
      durationSeconds,
      name,
      ...(leaseSeconds === undefined ? {} : { leaseSeconds }),
    },
  });
  ids[name] = made.id;
  if (leaseSeconds !== undefined) kept.add(name);
}
const get = (name: string) => api.call(owner, 'reservations.get', { id: ids[name]! });
const statesOf = async () =>
  Object.fromEntries(
    (
      await t.db.query<{ name: string; state: string }>(
        'select name, state from reservations where name is not null order by name',
      )
    ).map((r) => [r.name, r.state]),
  );
const now = async () => toMillis(await clock.now());

/** What a living deployment does in ten seconds. Answers how many runs its reconcilers made. */
async function tick(by: NodeHost = host): Promise<number> {
  await clock.jump(TICK);
  for (const g of gateways) {
    await t.db.query(`update leases set expires_at = compute_now() + interval '15 seconds' where name = $1`, [
      `gateway:${g}`,
    ]);
  }
  for (const name of kept) await api.call(owner, 'reservations.renew', { id: ids[name]!, body: {} });
  let ran = 0;
  for (let turns = 0; turns < 20; turns++) {
    const step = await by.step();
    ran += step.reduce((a, s) => a + s.ran, 0);
    const observed = await machinesObserve(t.db);
    if (observed === 0 && step.every((s) => s.nextMs > 20)) break;
  }
  return ran;
}
async function ticks(seconds: number): Promise<void> {
  for (let s = 0; s < seconds; s += TICK) await tick();
}

interface Books extends Record<string, unknown> {
  keys: number;
  events: number;
  deliveries: number;
  history: number;
  unreachable: number;
  seconds: number;
  sealed_ahead: number;
}
async function books(): Promise<Books> {
  const [row] = await t.db.query<Books>(
    `select (select count(*) from idempotency_keys) as keys, (select count(*) from events) as events,
       (select count(*) from webhook_deliveries) as deliveries, (select count(*) from state_history) as history,
       (select count(*) from nodes where connectivity = 'unreachable') as unreachable,
       (select coalesce(sum(device_seconds), 0)::bigint from usage_windows) as seconds,
       (select count(*) from usage_windows where hour > compute_now()) as sealed_ahead`,
  );
  return row!;
}

test('a fleet with reservations, leases, usage, deliveries and gateways is at work', async () => {
  await t.db.query(`update leases set expires_at = compute_now() + interval '15 seconds' where name = 'gateway:kit'`);
  await t.db.query(
    `insert into leases (name, holder, epoch, expires_at) values ('gateway:doomed', 'd', 1, compute_now() + interval '15 seconds')`,
  );
  await t.db.query(`update nodes set gateway_id = 'doomed' where id = $1`, [fleet.nodeIds[99]!]);
  await t.db.query(
    `insert into webhooks (id, tenant_id, url, event_types, secrets) values ('whk_1', $1, 'https://hooks.test', '{*}', '[]')`,
    [owner.id],
  );
  for (let i = 0; i < 10; i++) await reserve(`hours-${i}`, 2 * HOUR);
  for (let i = 0; i < 5; i++) await reserve(`leased-${i}`, 7 * DAY, 60);
  for (let i = 0; i < 3; i++) await reserve(`month-${i}`, 30 * DAY);
  await reserve('short', 20 * MINUTE);
  await reserve('given-back', 30 * DAY);
  await ticks(5 * MINUTE);
  const states = await statesOf();
  expect(Object.keys(states)).toHaveLength(20);
  expect(new Set(Object.values(states))).toEqual(new Set(['active']));
  expect((await books()).seconds).toBeGreaterThan(20 * 2 * 100);
  expect(said).toEqual([]);
});

test('ninety seconds that are four hundred days ahead end, delete and bill nothing', async () => {
  const before = await books();
  await clock.jump(YEARS_AHEAD);
  for (let s = 0; s < 90; s += TICK) {
    // Each waiting row is looked at once a minute at most, and not again and again.
    expect(await tick()).toBeLessThan(150);
    if (s === 20) {
      await expect(api.call(mortal, 'sites.list', {})).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
      await reserve('ahead', HOUR, 60);
      await api.call(owner, 'reservations.release', { id: ids['given-back']! });
    }
    if (s === 40) kept.delete('leased-4');
    if (s === 60) gateways.delete('doomed');
  }
  const why = await api.call(owner, 'reservations.explain', { id: ids['month-0']! });
  expect(why.waitingFor).toMatch(/^in use; .*; the clock jumped, and nothing expires until it is steady$/);
  // Another host takes the shards over, and dies with leases that last until then.
  await clock.jump(31);
  await tick(hostNamed('dies-ahead'));
  const after = await books();
  expect(after.unreachable).toBe(0);
  for (const what of ['keys', 'events', 'deliveries', 'history'] as const) {
    expect(after[what]).toBeGreaterThanOrEqual(before[what]);
  }
  expect(await statesOf()).toEqual({
    ...Object.fromEntries(Object.keys(ids).map((name) => [name, 'active'])),
    'given-back': 'released',
  });
  // Billed is what was held up to the last reading before the jump, and not a second more.
  expect(after.seconds).toBeGreaterThanOrEqual(before.seconds);
  expect(after.seconds).toBeLessThanOrEqual(20 * 2 * 5 * MINUTE);
  expect(said.filter((s) => s.startsWith('the clock jumped'))).toHaveLength(1);
});

test('once the clock is back everything goes on by itself, and nothing waits for next year', async () => {
  await clock.jump(-YEARS_AHEAD);
  expect((await api.call(mortal, 'sites.list', {})).items).toEqual([]);
  const returned = await now();
  await ticks(5 * MINUTE);
  expect(said.filter((s) => s.startsWith('the clock is back'))).toHaveLength(1);
  const leases = await t.db.query<{ name: string; holder: string }>(
    `select name, holder from leases where name like 'shard:%' and expires_at > compute_now() order by name`,
  );
  expect(leases).toEqual([0, 1, 2, 3].map((n) => ({ name: `shard:${n}`, holder: 'main' })));
  const late = await t.db.query(
    `select kind, key from work_queue where not_before > compute_now() + interval '31 days'
     or kind = 'sweep' and not_before > compute_now() + interval '1 minute'`,
  );
  expect(late).toEqual([]);
  // The tenant that died meanwhile, and the gateway: both are noticed, whatever they wrote last.
  expect(await get('leased-4')).toMatchObject({ state: 'released' });
  expect((await books()).unreachable).toBe(1);
  expect(await t.db.query(`select id from nodes where connectivity = 'unreachable'`)).toEqual([
    { id: fleet.nodeIds[99] },
  ]);
  // Made ahead of time: it begins when the clock came back, and lasts as long as was asked for.
  const ahead = await get('ahead');
  expect(ahead).toMatchObject({ state: 'active' });
  expect(Math.abs(toMillis(ahead.startsAt!) - returned)).toBeLessThanOrEqual(TICK * 1000);
  expect(toMillis(ahead.endsAt!) - toMillis(ahead.startsAt!)).toBe(HOUR * 1000);
  const [window] = await t.db.query<{ to: string }>(
    'select upper(during) as "to" from device_bookings where allocation_id = $1',
    [ahead.allocations[0]!.id],
  );
  expect(window!.to).toBe(ahead.endsAt);
  const others = Object.entries(await statesOf()).filter(([name]) => !['leased-4', 'given-back'].includes(name));
  expect(new Set(others.map(([, state]) => state))).toEqual(new Set(['active']));
  // Deliveries are due as ever.
  expect(
    await t.db.query(`select 1 from webhook_deliveries where state = 'pending' and next_attempt_at > compute_now()
      + interval '1 day'`),
  ).toEqual([]);
  expect((await books()).sealed_ahead).toBe(0);
});

test('what ends, ends on time', async () => {
  const short = await get('short');
  const left = (toMillis(short.endsAt!) - (await now())) / 1000;
  await ticks(left - TICK);
  expect(await get('short')).toMatchObject({ state: 'active' });
  await ticks(2 * TICK);
  expect(await get('short')).toMatchObject({ state: 'released' });
  const { sums } = await api.call(owner, 'usage.list', { reservationId: short.id });
  expect(sums[0]!.deviceSeconds).toBe((2 * (toMillis(short.endsAt!) - toMillis(short.activatedAt!))) / 1000);
});

test('after an outage of three hours expiry waits for those who could not renew, and then goes on by itself', async () => {
  const before = await statesOf();
  // Its hour ends in the outage, so that its tenant has nothing to renew.
  kept.delete('ahead');
  await clock.jump(3 * HOUR);
  await ticks(5 * MINUTE);
  expect(await statesOf()).toEqual(before);
  await ticks(6 * MINUTE);
  const states = await statesOf();
  for (let i = 0; i < 10; i++) expect(states[`hours-${i}`]).toBe('released');
  for (let i = 0; i < 4; i++) expect(states[`leased-${i}`]).toBe('active');
  for (let i = 0; i < 3; i++) expect(states[`month-${i}`]).toBe('active');
  // Billed to the end of its time, and not to when that was noticed, also where whole hours lie between.
  for (let i = 0; i < 10; i++) {
    const r = await get(`hours-${i}`);
    const { sums } = await api.call(owner, 'usage.list', { reservationId: r.id });
    expect(sums[0]!.deviceSeconds).toBe((2 * (toMillis(r.endsAt!) - toMillis(r.activatedAt!))) / 1000);
  }
  expect(said.filter((s) => s.startsWith('the clock settled'))).toHaveLength(1);
});

test('given back in the end, the books add up', async () => {
  kept.clear();
  for (const [name, state] of Object.entries(await statesOf())) {
    if (state === 'active') await api.call(owner, 'reservations.release', { id: ids[name]! });
  }
  await ticks(MINUTE);
  expect(new Set(Object.values(await statesOf()))).toEqual(new Set(['released']));
  expect(await bookErrors(t.db, { usage: true })).toEqual([]);
  const [quota] = await t.db.query<{ used: number }>('select used from quotas where tenant_id = $1', [owner.id]);
  expect(quota!.used).toBe(0);
  expect(said.filter((s) => s.startsWith('reconciler failed'))).toEqual([]);
});
