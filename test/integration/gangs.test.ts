/** Gangs: whole nodes, all or none, now or from a start. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { addSeconds } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

const GPUS = 4;
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
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 8, gpus: GPUS });
});
afterEach(async () => expect(await bookErrors(t.db)).toEqual([]));

interface Ask {
  readonly nodes?: number;
  readonly sameLabel?: string;
  readonly replace?: boolean;
  readonly start?: string;
  readonly count?: number;
}
const reserve = (ask: Ask, who = owner) =>
  api.call(who, 'reservations.create', {
    body: {
      poolId: fleet.poolId,
      devices: [{ class: 'gpu', count: ask.count ?? GPUS }],
      durationSeconds: 3600,
      ...(ask.nodes === undefined
        ? {}
        : {
            gang: {
              nodes: ask.nodes,
              ...(ask.sameLabel === undefined ? {} : { sameLabel: ask.sameLabel }),
              ...(ask.replace === undefined ? {} : { replace: ask.replace }),
            },
          }),
      ...(ask.start === undefined ? {} : { start: ask.start }),
    },
  });
const get = (id: string) => api.call(owner, 'reservations.get', { id });
const release = (id: string) => api.call(owner, 'reservations.release', { id });
const machines = async () => {
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
};
const give = async (...made: { id: string }[]) => {
  for (const { id } of made) await release(id);
  await machines();
};
const nodesOf = (r: { allocations: readonly { nodeId: string }[] }) => r.allocations.map((a) => a.nodeId).sort();
const node = (change: string, id: string) =>
  t.db.query(`with n as (update nodes set ${change} where id = $1 returning id) select node_refresh(id) from n`, [id]);
const label = (value: string, ...indices: number[]) =>
  t.db.query(`update nodes set labels = jsonb_build_object('fabric.domain', $2::text) where id = any($1::text[])`, [
    indices.map((i) => fleet.nodeIds[i]!),
    value,
  ]);
const live = async () =>
  (
    await t.db.query<{ n: number }>(
      'select count(*)::int as n from allocations where pool_id = $1 and released_at is null',
      [fleet.poolId],
    )
  )[0]!.n;

test('takes whole nodes, one allocation each, as one request, and lets all of them go', async () => {
  const made = await reserve({ nodes: 4 });
  expect(made).toMatchObject({ state: 'booked', gang: { nodes: 4, replace: true } });
  expect(new Set(nodesOf(made)).size).toBe(4);
  for (const a of made.allocations) expect(a.devices).toHaveLength(GPUS);
  await reconcile.settle();
  expect((await get(made.id)).state).toBe('booked');
  await machines();
  expect((await get(made.id)).state).toBe('active');
  await clock.pass(60);
  await give(made);
  expect((await get(made.id)).state).toBe('released');
  const { sums } = await api.call(owner, 'usage.list', { reservationId: made.id });
  expect(sums).toEqual([expect.objectContaining({ deviceSeconds: 60 * 4 * GPUS })]);
});

test('all or none: one node too few is refused with what stands in the way, and takes nothing', async () => {
  const single = await reserve({ count: 1 });
  await node(`cordoned = true, cordon_reason = 'fan'`, fleet.nodeIds[7]!);
  const used = nodesOf(single)[0] === fleet.nodeIds[7] ? 7 : 6;
  const before = await live();
  const refused = await reserve({ nodes: used + 1 }).catch((e) => e);
  expect(refused).toMatchObject({ code: 'CAPACITY_UNAVAILABLE', body: { wanted: (used + 1) * GPUS } });
  expect(refused.body.reasons[0]).toMatchObject({ code: 'GANG_TOO_FEW_NODES', nodes: used });
  expect(refused.body.reasons.map((r: { code: string }) => r.code)).toEqual(
    expect.arrayContaining(['NODE_UNSCHEDULABLE', 'NOT_WHOLE']),
  );
  expect(await live()).toBe(before);
  const fits = await reserve({ nodes: used });
  await give(single, fits);
});

test('on one value of a label: the smallest group that is large enough', async () => {
  await label('pod-a', 0, 1, 2, 3, 4);
  await label('pod-b', 5, 6, 7);
  const small = await reserve({ nodes: 3, sameLabel: 'fabric.domain' });
  expect(nodesOf(small)).toEqual([fleet.nodeIds[5], fleet.nodeIds[6], fleet.nodeIds[7]]);
  const refused = await reserve({ nodes: 6, sameLabel: 'fabric.domain' }).catch((e) => e);
  expect(refused.body.reasons[0].code).toBe('GANG_TOO_FEW_NODES');
  await give(small);
  const split = await reserve({ nodes: 6, sameLabel: 'fabric.domain' }).catch((e) => e);
  expect(split.body.reasons[0]).toMatchObject({ code: 'GANG_SPLIT', nodes: 8 });
  const none = await reserve({ nodes: 2, sameLabel: 'rack' }).catch((e) => e);
  expect(none.code).toBe('CAPACITY_UNAVAILABLE');
});

test('two gangs that want more than half each: one has all it wants, the other nothing, and no deadlock', async () => {
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.allSettled(Array.from({ length: 6 }, () => reserve({ nodes: 5 })));
    const made = answers.flatMap((a) => (a.status === 'fulfilled' ? [a.value] : []));
    expect(made).toHaveLength(1);
    for (const a of answers) if (a.status === 'rejected') expect(a.reason.code).toBe('CAPACITY_UNAVAILABLE');
    expect(await live()).toBe(5);
    await give(...made);
  }
});

test('gangs among single requests: the books add up, and every gang is whole', async () => {
  const asks = Array.from({ length: 24 }, (_, i) => reserve(i % 4 === 0 ? { nodes: 2 } : { count: 1 }));
  const answers = await Promise.allSettled(asks);
  const made = answers.flatMap((a) => (a.status === 'fulfilled' ? [a.value] : []));
  for (const a of answers)
    if (a.status === 'rejected') expect(a.reason.code).toMatch(/CAPACITY_UNAVAILABLE|CONTENTION/);
  for (const r of made) {
    if (r.gang === undefined) continue;
    expect(r.allocations).toHaveLength(2);
    for (const a of r.allocations) expect(a.devices).toHaveLength(GPUS);
  }
  const [deadlocks] = await t.db.query<{ n: number }>(
    'select deadlocks::int as n from pg_stat_database where datname = current_database()',
  );
  expect(deadlocks!.n).toBe(0);
  await give(...made);
});

test('quota is charged for all nodes or none', async () => {
  const guest = await seedTenant(t.db, 'guest');
  await offerPool(t.db, fleet, guest.id, 3 * GPUS);
  await expect(reserve({ nodes: 4 }, guest)).rejects.toMatchObject({
    code: 'QUOTA_EXCEEDED',
    body: { wanted: 4 * GPUS, used: 0, limit: 3 * GPUS },
  });
  const made = await reserve({ nodes: 3 }, guest);
  await expect(reserve({ count: 1 }, guest)).rejects.toMatchObject({ code: 'QUOTA_EXCEEDED' });
  await api.call(guest, 'reservations.release', { id: made.id });
  await machines();
});

test('from a start: booked now, begun together; a member that goes bad is replaced in its group, the rest kept', async () => {
  await label('pod-a', 0, 1, 2, 3, 4);
  await label('pod-b', 5, 6, 7);
  const start = addSeconds(await clock.now(), 3600);
  const made = await reserve({ nodes: 4, sameLabel: 'fabric.domain', start });
  expect(made).toMatchObject({ state: 'scheduled' });
  expect(nodesOf(made).every((n) => fleet.nodeIds.slice(0, 5).includes(n))).toBe(true);
  const lost = made.allocations[1]!.nodeId;
  await node(`connectivity = 'unreachable'`, lost);
  await clock.pass(2701);
  await machines();
  const mended = await get(made.id);
  const kept = nodesOf(made).filter((n) => n !== lost);
  expect(nodesOf(mended)).toEqual(expect.arrayContaining(kept));
  expect(nodesOf(mended)).not.toContain(lost);
  expect(mended.allocations).toHaveLength(4);
  expect(nodesOf(mended).every((n) => fleet.nodeIds.slice(0, 5).includes(n))).toBe(true);
  await clock.pass(900);
  await machines();
  expect((await get(made.id)).state).toBe('active');
  await give(made);
});

test('whoever does not want its members replaced keeps them, and is told', async () => {
  const start = addSeconds(await clock.now(), 3600);
  const made = await reserve({ nodes: 2, start, replace: false });
  await node(`cordoned = true, cordon_reason = 'fan'`, made.allocations[0]!.nodeId);
  await clock.pass(2800);
  await machines();
  expect(nodesOf(await get(made.id))).toEqual(nodesOf(made));
  const events = await t.db.query<{ type: string }>('select type from events where subject_id = $1 order by seq', [
    made.id,
  ]);
  expect(events.map((e) => e.type)).toEqual(['reservation.scheduled', 'reservation.ailing']);
  await give(made);
});

test('what makes no gang is refused by the field', async () => {
  for (const nodes of [0, 1, 65, 2.5])
    await expect(reserve({ nodes })).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
  const selectors = [{ attribute: 'model', op: 'equals' as const, value: 'h100' }];
  await expect(
    api.call(owner, 'reservations.create', {
      body: {
        poolId: fleet.poolId,
        devices: [{ class: 'gpu', count: 1, selectors }],
        gang: { nodes: 2 },
        durationSeconds: 60,
      },
    }),
  ).rejects.toMatchObject({
    code: 'INVALID_REQUEST',
    body: { errors: [expect.objectContaining({ field: 'devices' })] },
  });
});
