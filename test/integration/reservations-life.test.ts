/** A reservation from booked to released, by the reconcilers, under a clock that the test moves. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addSeconds, toMillis } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let clock: TestClock;
let reconcile: Controllers;
let owner: TestTenant;
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
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 1, gpus: 2 });
});

const reserve = (ask: { count?: number; durationSeconds?: number; leaseSeconds?: number } = {}) =>
  api.call(owner, 'reservations.create', {
    body: {
      poolId: fleet.poolId,
      devices: [{ class: 'gpu', count: ask.count ?? 1 }],
      durationSeconds: ask.durationSeconds ?? 3600,
      ...(ask.leaseSeconds === undefined ? {} : { leaseSeconds: ask.leaseSeconds }),
    },
  });
const renew = (id: string, body: { durationSeconds?: number } = {}) =>
  api.call(owner, 'reservations.renew', { id, body });
const release = (id: string) => api.call(owner, 'reservations.release', { id });
const get = (id: string) => api.call(owner, 'reservations.get', { id });
const explain = (id: string) => api.call(owner, 'reservations.explain', { id });
const free = async () =>
  (await api.call(owner, 'capacity.get', { poolId: fleet.poolId })).resources.find((r) => r.resource === 'gpu')!
    .available;
const node = (change: string) =>
  t.db.query(`with n as (update nodes set ${change} where id = $1 returning id) select node_refresh(id) from n`, [
    fleet.nodeIds[0]!,
  ]);
/** What is due is done; then the machines do what they were told, and that is done. */
const machines = async () => {
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
};
const later = async (seconds: number) => {
  await clock.pass(seconds);
  await reconcile.settle();
};
/** Seconds between two instants. */
const between = (a: string | undefined, b: string | undefined) => (toMillis(b!) - toMillis(a!)) / 1000;

describe('the way in', () => {
  test('booked until the machine confirms, then active, then metered', async () => {
    const made = await reserve();
    expect(made).toMatchObject({ state: 'booked', version: 2 });
    expect(between(made.startsAt, made.endsAt)).toBe(3600);
    await later(45);
    expect(await get(made.id)).toMatchObject({ state: 'booked' });
    await machines();
    const active = await get(made.id);
    expect(active).toMatchObject({ state: 'active', version: 3 });
    expect(between(made.startsAt, active.activatedAt)).toBe(45);
    await later(600);
    await release(made.id);
    await machines();
    expect(await get(made.id)).toMatchObject({ state: 'released', reason: 'let go' });
    const { sums } = await api.call(owner, 'usage.list', { reservationId: made.id });
    expect(sums).toEqual([{ meter: 'gpu.h100.hours', deviceSeconds: 600, hours: '0.1667' }]);
    expect(await bookErrors(t.db, { usage: true })).toEqual([]);
    const types = await t.db.query<{ type: string }>('select type from events where subject_id = $1 order by seq', [
      made.id,
    ]);
    expect(types.map((e) => e.type)).toEqual([
      'reservation.booked',
      'reservation.active',
      'reservation.releasing',
      'reservation.released',
    ]);
  });

  test('what never was confirmed is never paid for', async () => {
    const made = await reserve({ durationSeconds: 600 });
    await later(700);
    expect(await get(made.id)).toMatchObject({ state: 'releasing' });
    await machines();
    expect(await get(made.id)).toMatchObject({ state: 'released' });
    expect((await api.call(owner, 'usage.list', { reservationId: made.id })).items).toEqual([]);
    expect(await free()).toBe(2);
  });

  test('a draft that nobody admits is dropped after a day', async () => {
    await expect(reserve({ count: 3 })).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
    const [draft] = (await api.call(owner, 'reservations.list', { state: 'draft' })).items;
    await later(86_399);
    expect(await get(draft!.id)).toMatchObject({ state: 'draft' });
    await later(1);
    expect(await get(draft!.id)).toMatchObject({ state: 'abandoned', reason: 'never admitted' });
  });
});

describe('renewing', () => {
  test('moves the end to so many seconds from now, and never closer', async () => {
    const made = await reserve({ durationSeconds: 3600 });
    await machines();
    await later(600);
    expect(between(made.endsAt, (await renew(made.id, { durationSeconds: 3600 })).endsAt)).toBe(600);
    const further = await renew(made.id, { durationSeconds: 7200 });
    expect(between(made.endsAt, further.endsAt)).toBe(4200);
    expect((await renew(made.id, { durationSeconds: 60 })).endsAt).toBe(further.endsAt);
    const [window] = await t.db.query<{ to: string }>(
      'select upper(during) as "to" from device_bookings where allocation_id = $1',
      [made.allocations[0]!.id],
    );
    expect(window!.to).toBe(further.endsAt);
    await later(7199);
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    await later(1);
    expect(await get(made.id)).toMatchObject({ state: 'releasing', reason: 'expired' });
  });

  test('starts the lease anew; one that lapsed but was not noticed yet can still be saved, one that was cannot', async () => {
    const made = await reserve({ leaseSeconds: 30 });
    await machines();
    for (let i = 0; i < 4; i++) {
      await later(29);
      const renewed = await renew(made.id);
      expect(between(await clock.now(), renewed.leaseExpiresAt)).toBe(30);
      expect(renewed.endsAt).toBe(made.endsAt);
    }
    await clock.pass(31);
    await renew(made.id);
    await reconcile.settle();
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    await later(30);
    expect(await get(made.id)).toMatchObject({ state: 'releasing', reason: 'lease-lapsed' });
    await expect(renew(made.id)).rejects.toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      body: { from: 'releasing', event: 'renew', allowed: ['settle'] },
    });
    await machines();
    await expect(renew(made.id)).rejects.toMatchObject({ code: 'ILLEGAL_TRANSITION', body: { from: 'released' } });
    expect(await free()).toBe(2);
  });

  test('is refused where there is nothing to renew, and past a year from the start', async () => {
    const made = await reserve();
    await expect(renew(made.id)).rejects.toMatchObject({
      code: 'INVALID_REQUEST',
      body: { errors: [{ field: 'durationSeconds' }] },
    });
    await clock.pass(1800);
    await expect(renew(made.id, { durationSeconds: 366 * 86_400 })).rejects.toMatchObject({
      code: 'INVALID_REQUEST',
      body: { errors: [{ field: 'durationSeconds' }] },
    });
    expect(between(made.startsAt, (await renew(made.id, { durationSeconds: 366 * 86_400 - 1800 })).endsAt)).toBe(
      366 * 86_400,
    );
  });

  test('at the moment the lease lapses: renewed, or released, and never both', async () => {
    for (let i = 0; i < 8; i++) {
      const made = await reserve({ leaseSeconds: 30 });
      await machines();
      await clock.pass(30);
      const [renewed] = await Promise.allSettled([renew(made.id), reconcile.settle()]);
      const { state } = await get(made.id);
      expect([renewed.status, state]).toEqual(
        renewed.status === 'fulfilled' ? ['fulfilled', 'active'] : ['rejected', 'releasing'],
      );
      if (state === 'active') await release(made.id);
      await machines();
      expect(await free()).toBe(2);
    }
    expect(await bookErrors(t.db)).toEqual([]);
  });
});

describe('the way out', () => {
  test('the atoms stay held until the machine let go, whatever the end was, and nobody else gets them', async () => {
    const made = await reserve({ count: 2, durationSeconds: 600 });
    await machines();
    await later(600);
    for (let minutes = 0; minutes < 3; minutes++) {
      expect(await get(made.id)).toMatchObject({ state: 'releasing' });
      expect(await free()).toBe(0);
      await expect(reserve()).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
      await later(3600);
    }
    await machines();
    expect(await get(made.id)).toMatchObject({ state: 'released' });
    expect(await free()).toBe(2);
    const next = await reserve({ count: 2 });
    expect(next.allocations[0]!.devices).toEqual(made.allocations[0]!.devices);
    // The end counts, not the confirmation that came hours late.
    const { sums } = await api.call(owner, 'usage.list', { reservationId: made.id });
    expect(sums[0]!.deviceSeconds).toBe(2 * 600);
    expect(await bookErrors(t.db)).toEqual([]);
  });

  test('an unreachable machine keeps its atoms until it is back or fenced', async () => {
    const [one, two] = [await reserve(), await reserve()];
    await machines();
    await node(`connectivity = 'unreachable'`);
    for (const r of [one, two]) await release(r.id);
    await later(86_400);
    expect((await explain(one.id)).waitingFor).toMatch(
      /^node n1 has observed generation \d+ of \d+ and has not let go of the devices; it is unreachable$/,
    );
    expect(await t.db.query('select free from node_capacity where node_id = $1', [fleet.nodeIds[0]!])).toEqual([
      { free: 0 },
    ]);
    // Known to hold nothing any more: its word is not needed.
    await node('fenced_at = compute_now()');
    await t.db.query(`select wake('reservations', $1)`, [one.id]);
    await reconcile.settle();
    expect(await get(one.id)).toMatchObject({ state: 'released', reason: 'fenced' });
    await node(`connectivity = 'connected'`);
    await machines();
    expect(await get(two.id)).toMatchObject({ state: 'released' });
    expect(await free()).toBe(2);
    // A fence is about what was there before it.
    const after = await clock.pass(1).then(() => reserve());
    await machines();
    await release(after.id);
    await reconcile.settle();
    expect(await get(after.id)).toMatchObject({ state: 'releasing' });
    await machines();
    expect(await get(after.id)).toMatchObject({ state: 'released' });
  });

  test('a cordon stops nothing that runs: confirmation, renewal and release go on', async () => {
    const made = await reserve();
    await api.call(owner, 'nodes.cordon', { id: fleet.nodeIds[0]!, body: {} });
    await machines();
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    await renew(made.id, { durationSeconds: 7200 });
    await release(made.id);
    await machines();
    expect(await get(made.id)).toMatchObject({ state: 'released' });
  });

  test('released twice, in any state: the second changes nothing', async () => {
    const made = await reserve();
    const first = await release(made.id);
    expect(await release(made.id)).toEqual(first);
    await machines();
    const over = await get(made.id);
    expect(await release(made.id)).toEqual(over);
    const events = await t.db.query<{ n: number }>(
      `select count(*) as n from events where subject_id = $1 and type = 'reservation.releasing'`,
      [made.id],
    );
    expect(events[0]!.n).toBe(1);
    const { items } = await api.call(owner, 'audit.list', { resourceId: made.id });
    expect(items.map((a) => a.action)).toEqual(['compute:reservations:create', 'compute:reservations:release']);
  });
});

test('explain says what it waits for in every state, and how it came there', async () => {
  await expect(reserve({ count: 3 })).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
  const [draft] = (await api.call(owner, 'reservations.list', { state: 'draft' })).items;
  expect(await explain(draft!.id)).toMatchObject({
    state: 'draft',
    waitingFor: expect.stringContaining('repeat the request with the same key'),
    reasons: [{ code: 'TOO_FEW_DEVICES', message: 'has 2 gpu, wanted 3', nodes: 1, example: 'n1' }],
    history: [],
  });
  const made = await reserve({ leaseSeconds: 60 });
  expect((await explain(made.id)).waitingFor).toBe('the spec of node n1 is being composed');
  await reconcile.settle();
  expect((await explain(made.id)).waitingFor).toMatch(
    /^node n1 has observed generation 1 of 2 and has not confirmed the devices$/,
  );
  await machines();
  const active = await explain(made.id);
  expect(active.waitingFor).toMatch(/^in use; ends at .* unless renewed$/);
  expect(toMillis(/ends at (\S+)/.exec(active.waitingFor!)![1]!)).toBe(toMillis(addSeconds(await clock.now(), 60)));
  await release(made.id);
  expect((await explain(made.id)).waitingFor).toBe('the spec of node n1 is being composed');
  await reconcile.settle();
  expect((await explain(made.id)).waitingFor).toMatch(/has observed generation 2 of 3 and has not let go/);
  await machines();
  const over = await explain(made.id);
  expect(over).toMatchObject({ state: 'released', reasons: [] });
  expect(over).not.toHaveProperty('waitingFor');
  expect(
    over.history.map((h) => `${h.event} by ${h.actor}: ${h.from} -> ${h.to}${h.reason ? `, ${h.reason}` : ''}`),
  ).toEqual([
    'admit by api: draft -> booked',
    'activate by reservations: booked -> active',
    'release by api: active -> releasing, released',
    'settle by reservations: releasing -> released, let go',
  ]);
});
