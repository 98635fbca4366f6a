/** Windows to come: booked at admission, looked after before the start, begun when the machine has let go. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
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
let fleet: Fleet;
let now: string;
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
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 2, gpus: 2 });
  now = await clock.now();
});
afterEach(async () => expect(await bookErrors(t.db)).toEqual([]));

interface Ask {
  readonly start?: number | string;
  readonly seconds?: number;
  readonly count?: number;
  readonly leaseSeconds?: number;
  readonly selectors?: readonly object[];
}
const at = (seconds: number) => addSeconds(now, seconds);
const body = (ask: Ask) => ({
  poolId: fleet.poolId,
  devices: [
    {
      class: 'gpu' as const,
      count: ask.count ?? 1,
      ...(ask.selectors === undefined ? {} : { selectors: ask.selectors as never }),
    },
  ],
  durationSeconds: ask.seconds ?? 3600,
  ...(ask.start === undefined ? {} : { start: typeof ask.start === 'string' ? ask.start : at(ask.start) }),
  ...(ask.leaseSeconds === undefined ? {} : { leaseSeconds: ask.leaseSeconds }),
});
const reserve = (ask: Ask, key?: string) =>
  api.call(owner, 'reservations.create', { body: body(ask) }, key === undefined ? {} : { key });
const get = (id: string) => api.call(owner, 'reservations.get', { id });
const release = (id: string) => api.call(owner, 'reservations.release', { id });
const explain = (id: string) => api.call(owner, 'reservations.explain', { id });
const machines = async () => {
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
};
const later = async (seconds: number) => {
  await clock.pass(seconds);
  await machines();
};
const gpus = async () =>
  (await api.call(owner, 'capacity.get', { poolId: fleet.poolId })).resources.find((r) => r.resource === 'gpu')!;
const deviceIds = (r: { allocations: readonly { devices: readonly { id: string }[] }[] }) =>
  r.allocations.flatMap((a) => a.devices.map((d) => d.id)).sort();
const eventsOf = async (id: string) =>
  (
    await t.db.query<{ type: string; data: Record<string, never> }>(
      'select type, data from events where subject_id = $1 order by seq',
      [id],
    )
  ).map((e) => e);
const break_ = (what: string, id: string) =>
  t.db.query(
    `with d as (update devices set ${what} where id = $1 returning node_id) select node_refresh(node_id) from d`,
    [id],
  );
const node = (change: string, id: string) =>
  t.db.query(`with n as (update nodes set ${change} where id = $1 returning id) select node_refresh(id) from n`, [id]);
const cancelAll = async (...made: { id: string }[]) => {
  for (const { id } of made) await release(id);
  await machines();
};

describe('a window to come', () => {
  test('is booked at admission for exactly start to start + duration, begins then, and ends then', async () => {
    const made = await reserve({ start: 7200, seconds: 1800 });
    expect(made).toMatchObject({ state: 'scheduled', startsAt: expect.any(String) });
    expect(toMillis(made.startsAt!)).toBe(toMillis(at(7200)));
    expect(toMillis(made.endsAt!)).toBe(toMillis(at(9000)));
    expect(deviceIds(made)).toHaveLength(1);
    const [booking] = await t.db.query<{ from: string; to: string }>(
      `select instant(lower(b.during)) as from, instant(upper(b.during)) as to from device_bookings b
       join allocations a on a.id = b.allocation_id where a.reservation_id = $1`,
      [made.id],
    );
    expect([toMillis(booking!.from), toMillis(booking!.to)]).toEqual([toMillis(at(7200)), toMillis(at(9000))]);
    await later(7100);
    expect(await get(made.id)).toMatchObject({ state: 'scheduled' });
    await later(100);
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    expect(deviceIds(await get(made.id))).toEqual(deviceIds(made));
    await later(1800);
    expect(await get(made.id)).toMatchObject({ state: 'released' });
    const { sums } = await api.call(owner, 'usage.list', { reservationId: made.id });
    expect(sums).toEqual([expect.objectContaining({ meter: 'gpu.h100.hours', deviceSeconds: 1800 })]);
    expect((await eventsOf(made.id)).map((e) => e.type)).toEqual([
      'reservation.scheduled',
      'reservation.booked',
      'reservation.active',
      'reservation.releasing',
      'reservation.released',
    ]);
  });

  test('touching windows of one device pass, contained and overlapping ones do not', async () => {
    const day = await reserve({ start: 3600, seconds: 3600, count: 2 });
    const other = await reserve({ start: 3600, seconds: 3600, count: 2 });
    // All four devices are taken for [1 h, 2 h).
    for (const [start, seconds] of [
      [3600, 3600],
      [3700, 60],
      [1800, 1801],
      [7199, 3600],
      [1800, 7200],
    ]) {
      await expect(reserve({ start: start!, seconds: seconds! })).rejects.toMatchObject({
        code: 'CAPACITY_UNAVAILABLE',
        body: { reasons: [expect.objectContaining({ code: 'DEVICES_IN_USE', nodes: 2 })] },
      });
    }
    const before = await reserve({ start: 1800, seconds: 1800, count: 2 });
    const after = await reserve({ start: 7200, seconds: 60, count: 2 });
    expect(before.state).toBe('scheduled');
    expect(after.state).toBe('scheduled');
    await cancelAll(day, other, before, after);
    expect(await gpus()).toMatchObject({ available: 4, reserved: 0, allocated: 0 });
  });

  test('a request for now fits in before it, and no longer than that', async () => {
    const all = [await reserve({ start: 3600, count: 2 }), await reserve({ start: 3600, count: 2 })];
    expect(await gpus()).toMatchObject({ available: 4, reserved: 4, allocated: 0 });
    await expect(reserve({ seconds: 3601 })).rejects.toMatchObject({
      code: 'CAPACITY_UNAVAILABLE',
      body: { reasons: [expect.objectContaining({ code: 'DEVICES_BOOKED', nodes: 2 })] },
    });
    const short = await reserve({ seconds: 3600, count: 2 });
    expect(short.state).toBe('booked');
    await machines();
    await expect(
      api.call(owner, 'reservations.renew', { id: short.id, body: { durationSeconds: 3700 } }),
    ).rejects.toMatchObject({ code: 'CONFLICT' });
    await later(3599);
    expect(await get(short.id)).toMatchObject({ state: 'active' });
    await cancelAll(short, ...all);
  });

  test('the next holder begins when the machine has let go of the former, not before', async () => {
    const first = await reserve({ seconds: 3600, count: 2 });
    const second = await reserve({ start: 3600, seconds: 3600, count: 2 });
    const third = await reserve({ seconds: 7200, count: 2 });
    expect(deviceIds(second)).toEqual(deviceIds(first));
    await machines();
    await clock.pass(3600);
    await reconcile.settle();
    // The machine says nothing: over in the books, and in nobody else's hands.
    expect(await get(first.id)).toMatchObject({ state: 'releasing' });
    expect(await get(second.id)).toMatchObject({ state: 'scheduled' });
    expect((await explain(second.id)).waitingFor).toContain(first.id);
    await later(45);
    expect(await get(first.id)).toMatchObject({ state: 'released' });
    await machines();
    const begun = await get(second.id);
    expect(begun).toMatchObject({ state: 'active' });
    expect(toMillis(begun.endsAt!)).toBe(toMillis(second.endsAt!));
    await later(100);
    await cancelAll(second, third);
    // Paid for from when it had the devices, not from the start.
    const { sums } = await api.call(owner, 'usage.list', { reservationId: second.id });
    expect(sums).toEqual([expect.objectContaining({ deviceSeconds: 200 })]);
  });

  test('given up before it begins, everything is free at once; one whose window passed is cancelled', async () => {
    const made = await reserve({ start: 3600, count: 2 });
    expect(await release(made.id)).toMatchObject({ state: 'released', reason: 'released' });
    expect(await gpus()).toMatchObject({ available: 4, reserved: 0 });
    expect(await release(made.id)).toMatchObject({ state: 'released' });
    const blocked = await reserve({ seconds: 3600, count: 2 });
    const next = await reserve({ start: 3600, seconds: 60, count: 2 });
    await reconcile.settle();
    await clock.pass(3600);
    await reconcile.settle();
    await clock.pass(61);
    await reconcile.settle();
    expect(await get(next.id)).toMatchObject({ state: 'released', reason: 'window passed' });
    await machines();
    expect(await get(blocked.id)).toMatchObject({ state: 'released' });
  });

  test('a start that is past, now, or too far is refused by its name; a replay answers as before', async () => {
    const refused = { code: 'INVALID_REQUEST', body: { errors: [{ field: 'start', message: expect.any(String) }] } };
    await expect(reserve({ start: 0 })).rejects.toMatchObject(refused);
    await expect(reserve({ start: -60 })).rejects.toMatchObject(refused);
    await expect(reserve({ start: 366 * 86_400 + 1 })).rejects.toMatchObject(refused);
    await expect(reserve({ start: 'tomorrow' })).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    await expect(reserve({ start: '2027-01-01T00:00:00' })).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    for (const seconds of [0, -1, 59, 366 * 86_400 + 1, Number.POSITIVE_INFINITY]) {
      await expect(reserve({ start: 60, seconds })).rejects.toMatchObject({
        code: 'INVALID_REQUEST',
        body: { errors: [expect.objectContaining({ field: 'durationSeconds' })] },
      });
    }
    const made = await reserve({ start: 60, seconds: 60 }, 'once');
    await later(3600);
    expect(
      await api.call(
        owner,
        'reservations.create',
        { body: { ...body({ seconds: 60 }), start: at(60) } },
        { key: 'once' },
      ),
    ).toEqual(made);
  });

  test('with selectors it finds the devices that match and are open then', async () => {
    const selectors = [{ attribute: 'numaNode', op: 'equals', value: 0 }];
    const now_ = await reserve({ seconds: 3600, count: 2, selectors });
    const made = await reserve({ start: 3600, count: 2, selectors });
    const third = await reserve({ start: 3600, count: 2, selectors });
    await expect(reserve({ start: 3600, selectors })).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
    const none = [{ attribute: 'numaNode', op: 'equals', value: 9 }];
    await expect(reserve({ start: 3600, selectors: none })).rejects.toMatchObject({
      body: { reasons: [expect.objectContaining({ code: 'SELECTOR_MISMATCH' })] },
    });
    await cancelAll(now_, made, third);
  });

  test('quota counts what is booked for later, and gives it back', async () => {
    const guest = await seedTenant(t.db, 'guest');
    await offerPool(t.db, fleet, guest.id, 2);
    const ask = (count: number) => api.call(guest, 'reservations.create', { body: body({ start: 3600, count }) });
    const made = await ask(2);
    await expect(ask(1)).rejects.toMatchObject({ code: 'QUOTA_EXCEEDED' });
    await api.call(guest, 'reservations.release', { id: made.id });
    const again = await ask(2);
    await api.call(guest, 'reservations.release', { id: again.id });
  });

  test('its lease begins with the window', async () => {
    const made = await reserve({ start: 3600, seconds: 3600, leaseSeconds: 600 });
    await later(3600);
    const begun = await get(made.id);
    expect(begun.state).toBe('active');
    expect(toMillis(begun.leaseExpiresAt!)).toBe(toMillis(at(4200)));
    await later(600);
    expect(await get(made.id)).toMatchObject({ state: 'released' });
  });
});

describe('hardware that goes bad before the start', () => {
  test('is swapped for equal hardware 15 minutes ahead, and told with old and new devices', async () => {
    const made = await reserve({ start: 7200 });
    const [bad] = deviceIds(made);
    await break_(`health = 'unhealthy', health_reason = 'Xid 79'`, bad!);
    await later(6299);
    expect(deviceIds(await get(made.id))).toEqual([bad]);
    await later(2);
    const mended = await get(made.id);
    expect(mended.state).toBe('scheduled');
    expect(deviceIds(mended)).not.toContain(bad);
    // The node's other device is as good.
    expect(mended.allocations[0]!.nodeId).toBe(made.allocations[0]!.nodeId);
    const repaired = (await eventsOf(made.id)).find((e) => e.type === 'reservation.repaired')!;
    expect(repaired.data).toMatchObject({
      why: [expect.stringContaining('Xid 79')],
      from: { devices: [{ id: bad }] },
      to: { devices: [{ id: deviceIds(mended)[0] }] },
    });
    await later(900);
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    await cancelAll(made);
  });

  test('a node that is cordoned or unreachable at the start is left for another', async () => {
    const made = await reserve({ start: 3600, count: 2 });
    await later(3599);
    await node(`cordoned = true, cordon_reason = 'fan'`, made.allocations[0]!.nodeId);
    await later(31);
    const moved = await get(made.id);
    expect(moved.state).toBe('active');
    expect(moved.allocations).toHaveLength(1);
    expect(moved.allocations[0]!.nodeId).not.toBe(made.allocations[0]!.nodeId);
    await node('cordoned = false, cordon_reason = null', made.allocations[0]!.nodeId);
    await cancelAll(made);
  });

  test('where there is none, the holder is told once, keeps what is good, and begins with it', async () => {
    const made = await reserve({ start: 3600, count: 2 });
    const rest = await reserve({ start: 3600, count: 2 });
    const [bad] = deviceIds(made);
    await break_(`health = 'unhealthy', health_reason = 'ECC'`, bad!);
    await later(2800);
    await later(300);
    await later(300);
    expect(deviceIds(await get(made.id))).toEqual(deviceIds(made));
    expect((await explain(made.id)).waitingFor).toMatch(/nothing was found in place of node .*ECC/);
    const told = (await eventsOf(made.id)).filter((e) => e.type === 'reservation.ailing');
    expect(told).toHaveLength(1);
    expect(told[0]!.data).toMatchObject({ why: [expect.stringContaining('ECC')] });
    await later(200);
    expect(await get(made.id)).toMatchObject({ state: 'active' });
    await cancelAll(made, rest);
  });
});

describe('capacity over a time', () => {
  const series = (q: object = {}) => api.call(owner, 'capacity.series', { poolId: fleet.poolId, ...q });
  const points = async (q: object = {}) => (await series(q)).resources[0]!.points.map((p) => p.booked);

  test('each step counts the devices that somebody has at some time in it, each once', async () => {
    const held = await reserve({ seconds: 7200 });
    const first = await reserve({ start: 3600, seconds: 1800, count: 2 });
    const second = await reserve({ start: 5400, seconds: 1800, count: 2 });
    const q = { from: now, to: at(4 * 3600) };
    const both = new Set([...deviceIds(first), ...deviceIds(second)]).size;
    expect(await points(q)).toEqual([1, 1 + both, 0, 0]);
    expect(await points({ ...q, stepSeconds: 1800 })).toEqual([1, 1, 3, 3, 0, 0, 0, 0]);
    expect((await series(q)).resources[0]!.points[3]).toEqual({
      at: expect.any(String),
      allocatable: 4,
      booked: 0,
      available: 4,
    });
    await node(`cordoned = true, cordon_reason = 'fan'`, held.allocations[0]!.nodeId);
    expect((await series(q)).resources[0]!.points[0]!.allocatable).toBe(2);
    await node('cordoned = false, cordon_reason = null', held.allocations[0]!.nodeId);
    await cancelAll(held, first, second);
    expect(await points(q)).toEqual([0, 0, 0, 0]);
  });

  test('what is no time, or too many steps, is refused by the field', async () => {
    await expect(series({ from: now, to: now })).rejects.toMatchObject({ body: { errors: [{ field: 'to' }] } });
    await expect(series({ from: now, to: at(-1) })).rejects.toMatchObject({ body: { errors: [{ field: 'to' }] } });
    await expect(series({ from: now, to: at(90 * 86_400), stepSeconds: 60 })).rejects.toMatchObject({
      body: { errors: [expect.objectContaining({ field: 'stepSeconds' })] },
    });
  });

  test('a question is answered as the request would be, and takes nothing', async () => {
    const ask = (a: Ask) => api.call(owner, 'capacity.explain', { body: body(a) as never });
    expect(await ask({ count: 2 })).toEqual({ fits: true, free: 0, reasons: [] });
    const all = [await reserve({ start: 3600, count: 2 }), await reserve({ start: 3600, count: 2 })];
    expect(await ask({ seconds: 3600, count: 2 })).toMatchObject({ fits: true });
    expect(await ask({ seconds: 3601 })).toMatchObject({ fits: false, reasons: [{ code: 'DEVICES_BOOKED' }] });
    expect(await ask({ start: 7000 })).toMatchObject({ fits: false, reasons: [{ code: 'DEVICES_IN_USE' }] });
    expect(await ask({ start: 7200 })).toMatchObject({ fits: true });
    expect(await gpus()).toMatchObject({ allocated: 0, reserved: 4 });
    await cancelAll(...all);
  });
});

test('bookings for the same windows at once: never two for one device, and all that can be served are', async () => {
  const starts = [3600, 5400, 7200];
  const asks = Array.from({ length: 48 }, (_, i) => reserve({ start: starts[i % 3]!, seconds: 1800 }));
  const answers = await Promise.allSettled(asks);
  const made = answers.flatMap((a) => (a.status === 'fulfilled' ? [a.value] : []));
  for (const a of answers) {
    if (a.status === 'rejected') expect((a.reason as { code: string }).code).toMatch(/CAPACITY_UNAVAILABLE|CONTENTION/);
  }
  expect(made).toHaveLength(12);
  expect(await bookErrors(t.db)).toEqual([]);
  await cancelAll(...made);
});
