/** Spot: what is cheap gives way with notice, and at every instant exactly one of the two has the devices in the books. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { addSeconds, toMillis } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let clock: TestClock;
let reconcile: Controllers;
let owner: TestTenant;
let guest: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  clock = await takeClock(t.db);
  api = testApi(t.db);
  reconcile = controllers(t.db);
  await seedRoot(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  owner = await seedTenant(t.db, 'owner');
  guest = await seedTenant(t.db, 'guest');
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 2, gpus: 2 });
  await offerPool(t.db, fleet, guest.id, 4);
});
afterEach(async () => expect(await bookErrors(t.db)).toEqual([]));

interface Ask {
  readonly count?: number;
  readonly seconds?: number;
  readonly start?: string;
  readonly spot?: boolean;
  readonly selectors?: readonly object[];
}
const reserve = (who: TestTenant, ask: Ask = {}) =>
  api.call(who, 'reservations.create', {
    body: {
      poolId: fleet.poolId,
      devices: [
        {
          class: 'gpu',
          count: ask.count ?? 2,
          ...(ask.selectors === undefined ? {} : { selectors: ask.selectors as never }),
        },
      ],
      durationSeconds: ask.seconds ?? 3600,
      ...(ask.spot === undefined ? {} : { spot: ask.spot }),
      ...(ask.start === undefined ? {} : { start: ask.start }),
    },
  });
const spot = (ask: Ask = {}) => reserve(guest, { ...ask, spot: true });
const get = (who: TestTenant, id: string) => api.call(who, 'reservations.get', { id });
const machines = async () => {
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
};
const later = async (seconds: number) => {
  await clock.pass(seconds);
  await machines();
  await machines();
};
const give = async (...made: { id: string; tenantId: string }[]) => {
  for (const r of made) await api.call(r.tenantId === owner.id ? owner : guest, 'reservations.release', { id: r.id });
  await machines();
};
/** Who has each device of a node in the books at an instant. */
const holders = (nodeId: string, at: string) =>
  t.db.query<{ n: number }>(
    `select count(b.device_no)::int as n from devices d left join device_bookings b
       on b.device_no = d.no and b.released_at is null and b.during @> $2::timestamptz
     where d.node_id = $1 group by d.no order by d.no`,
    [nodeId, at],
  );

test('gives way with notice when nothing else fits: told, ended, handed over, metered apart', async () => {
  const cheap = [await spot(), await spot()];
  await machines();
  expect(await get(guest, cheap[0]!.id)).toMatchObject({ state: 'active', spot: true });
  await later(100);
  const now = await clock.now();
  const paid = await reserve(owner);
  expect(paid).toMatchObject({ state: 'scheduled' });
  expect(toMillis(paid.startsAt!)).toBe(toMillis(addSeconds(now, 120)));
  const victim = cheap.find((c) => c.allocations[0]!.nodeId === paid.allocations[0]!.nodeId)!;
  const other = cheap.find((c) => c !== victim)!;
  const told = await get(guest, victim.id);
  expect(told).toMatchObject({ state: 'active', preemptedAt: expect.any(String) });
  expect(told.endsAt).toBe(paid.startsAt);
  expect((await get(guest, other.id)).preemptedAt).toBeUndefined();
  const events = await t.db.query<{ type: string; data: object }>(
    `select type, data from events where subject_id = $1 and type = 'reservation.preempted'`,
    [victim.id],
  );
  expect(events).toEqual([{ type: 'reservation.preempted', data: { id: victim.id, endsAt: paid.startsAt } }]);
  // One holder at every instant around the handover.
  const handover = toMillis(paid.startsAt!);
  for (const at of [-1000, -1, 0, 1, 1000].map((ms) => new Date(handover + ms).toISOString())) {
    expect((await holders(paid.allocations[0]!.nodeId, at)).map((h) => h.n)).toEqual([1, 1]);
  }
  await later(119);
  expect((await get(guest, victim.id)).state).toBe('active');
  await later(1);
  expect(await get(guest, victim.id)).toMatchObject({ state: 'released' });
  expect(await get(owner, paid.id)).toMatchObject({ state: 'active' });
  await later(60);
  await give(paid, other);
  const meters = async (who: TestTenant, reservationId: string) =>
    (await api.call(who, 'usage.list', { reservationId })).sums.map((s) => [s.meter, s.deviceSeconds]);
  expect(await meters(guest, victim.id)).toEqual([['gpu.h100.spot.hours', 440]]);
  expect(await meters(owner, paid.id)).toEqual([['gpu.h100.hours', 120]]);
});

test('nobody gives way while something is free, to spot, or twice', async () => {
  const first = await spot();
  const beside = await reserve(owner);
  expect(beside.state).toBe('booked');
  await expect(spot()).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
  const paid = await reserve(owner);
  expect(paid.state).toBe('scheduled');
  await expect(reserve(owner)).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
  await expect(
    api.call(guest, 'reservations.renew', { id: first.id, body: { durationSeconds: 7200 } }),
  ).rejects.toMatchObject({ code: 'CONFLICT' });
  // Its successor gave up: it may go on, and may be told again.
  await give(paid);
  const renewed = await api.call(guest, 'reservations.renew', { id: first.id, body: { durationSeconds: 7200 } });
  expect(renewed.preemptedAt).toBeUndefined();
  const again = await reserve(owner);
  expect(again.state).toBe('scheduled');
  await give(again, beside, first);
});

test('the one with the least work to lose goes, of equals the younger', async () => {
  const old = await spot({ count: 1 });
  await later(1000);
  const young = await spot({ count: 1 });
  const rest = await reserve(owner);
  await machines();
  const paid = await reserve(owner, { count: 1 });
  expect((await get(guest, young.id)).preemptedAt).toBeDefined();
  expect((await get(guest, old.id)).preemptedAt).toBeUndefined();
  await give(paid, rest, old, young);
  await later(200);
  const twins = [await spot({ count: 1 })];
  await clock.pass(10);
  twins.push(await spot({ count: 1 }));
  const other = await reserve(owner);
  // Neither has worked yet.
  const winner = await reserve(owner, { count: 1 });
  expect((await get(guest, twins[1]!.id)).preemptedAt).toBeDefined();
  expect((await get(guest, twins[0]!.id)).preemptedAt).toBeUndefined();
  await give(winner, other, ...twins);
});

test('a window to come takes them at its start, if there is the time to tell them', async () => {
  const cheap = [await spot({ seconds: 7200 }), await spot({ seconds: 7200 })];
  await machines();
  const now = await clock.now();
  await expect(reserve(owner, { start: addSeconds(now, 60) })).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
  const start = addSeconds(now, 3600);
  const made = await reserve(owner, { start });
  expect(toMillis(made.startsAt!)).toBe(toMillis(start));
  const after = await Promise.all(cheap.map((c) => get(guest, c.id)));
  expect(after.filter((c) => c.preemptedAt !== undefined).map((c) => c.endsAt)).toEqual([made.startsAt]);
  await later(3600);
  expect((await get(owner, made.id)).state).toBe('active');
  await give(made, ...cheap);
});

test('with selectors they give way as well', async () => {
  const cheap = [await spot(), await spot()];
  await machines();
  const selectors = [{ attribute: 'numaNode', op: 'equals', value: 0 }];
  const paid = await reserve(owner, { selectors });
  expect(paid.state).toBe('scheduled');
  await later(120);
  expect((await get(owner, paid.id)).state).toBe('active');
  await give(paid, ...cheap);
});

test('the notice is the pool’s; spot is for now and for one node', async () => {
  await api.call(owner, 'pools.update', { id: fleet.poolId, body: { spotNoticeSeconds: 30 } });
  const cheap = [await spot(), await spot()];
  const now = await clock.now();
  const paid = await reserve(owner);
  expect(toMillis(paid.startsAt!)).toBe(toMillis(addSeconds(now, 30)));
  await expect(spot({ start: addSeconds(now, 600) })).rejects.toMatchObject({
    code: 'INVALID_REQUEST',
    body: { errors: [expect.objectContaining({ field: 'spot' })] },
  });
  await give(paid, ...cheap);
});

test('many at once over what is spot: one gets each device, nobody gives way for nothing', async () => {
  const cheap = await Promise.all(Array.from({ length: 4 }, () => spot({ count: 1 })));
  await machines();
  const answers = await Promise.allSettled(Array.from({ length: 12 }, () => reserve(owner, { count: 1 })));
  const made = answers.flatMap((a) => (a.status === 'fulfilled' ? [a.value] : []));
  for (const a of answers)
    if (a.status === 'rejected') expect(a.reason.code).toMatch(/CAPACITY_UNAVAILABLE|CONTENTION/);
  expect(made).toHaveLength(4);
  expect((await Promise.all(cheap.map((c) => get(guest, c.id)))).every((c) => c.preemptedAt !== undefined)).toBe(true);
  await later(120);
  for (const r of made) expect((await get(owner, r.id)).state).toBe('active');
  await give(...made);
});
