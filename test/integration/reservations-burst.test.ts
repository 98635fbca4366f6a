/**
 * A burst of requests for few devices, over several API processes, half of them given back at once: no device is ever
 * promised twice, whoever proposes, and who loses is told that nothing is free.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seededRandom } from '#core/kernel/random.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { CandidateNode, DeviceWant, Proposal } from '#core/placement/place.ts';
import { Refused, type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';
import { openPg, type PgDatabase } from '#plugins/database/node-postgres.ts';

const PROCESSES = 4;
const REQUESTS = 200;
const random = seededRandom(5);

let t: TestDatabase;
let handles: PgDatabase[];
let reconcile: Controllers;
let owner: TestTenant;
let guest: TestTenant;
beforeAll(async () => {
  t = await testDatabase();
  handles = Array.from({ length: PROCESSES }, () => openPg(t.url, { max: 4 }));
  reconcile = controllers(t.db);
  await seedRoot(t.db);
  [owner, guest] = [await seedTenant(t.db, 'owner'), await seedTenant(t.db, 'guest')];
});
afterAll(async () => {
  await Promise.all((handles ?? []).map((h) => h.close()));
  await t?.close();
});

/** Any devices of any node, free or not: the database must hold against whatever is proposed. */
function careless(wants: readonly DeviceWant[], nodes: readonly CandidateNode[]): Proposal[] {
  if (nodes.length === 0) return [];
  return Array.from({ length: 3 }, () => {
    const node = random.pick(nodes);
    return { nodeId: node.nodeId, deviceNos: wants.map(() => random.pick(node.devices).no) };
  });
}

const anyGpu = [{ class: 'gpu' as const, count: 1 }];
const someGpu = [
  { class: 'gpu' as const, count: 1, selectors: [{ attribute: 'numaNode', op: 'in' as const, values: [0, 1] }] },
];

describe.each([
  { placer: 'the index walk', devices: anyGpu, over: {}, refusals: ['CAPACITY_UNAVAILABLE'] },
  { placer: 'the placer of selectors', devices: someGpu, over: {}, refusals: ['CAPACITY_UNAVAILABLE'] },
  {
    placer: 'one that proposes at random',
    devices: anyGpu,
    over: { placer: careless },
    refusals: ['CAPACITY_UNAVAILABLE', 'CONTENTION'],
  },
])('200 requests for 16 devices, placed by $placer', ({ devices, over, refusals }) => {
  test('one live booking a device at every instant, and books that add up', async () => {
    const fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 2, gpus: 8 });
    await offerPool(t.db, fleet, guest.id, 12);
    const apis: TestApi[] = handles.map((db) => testApi(db, over));
    let running = true;
    const instants: string[][] = [];
    const watcher = (async () => {
      while (running) {
        instants.push(await bookErrors(t.db));
        await systemClock.sleep(10);
      }
    })();
    const machines = (async () => {
      while (running) {
        await reconcile.settle();
        await machinesObserve(t.db);
        await systemClock.sleep(5);
      }
    })();

    const request = async (n: number) => {
      const api = apis[n % PROCESSES]!;
      const who = n % 3 === 0 ? owner : guest;
      const made = await api.call(who, 'reservations.create', {
        body: { poolId: fleet.poolId, devices, durationSeconds: 3600 },
      });
      if (n % 2 === 0) {
        await systemClock.sleep(50);
        await api.call(who, 'reservations.release', { id: made.id });
      }
      return made;
    };
    const asked = await Promise.allSettled(Array.from({ length: REQUESTS }, (_, n) => request(n)));
    const admitted = asked.flatMap((a) => (a.status === 'fulfilled' ? [a.value] : []));
    const codes = asked.flatMap((a) =>
      a.status === 'rejected' ? [a.reason instanceof Refused ? a.reason.code : String(a.reason)] : [],
    );
    expect([...new Set(codes)].filter((c) => ![...refusals, 'QUOTA_EXCEEDED'].includes(c))).toEqual([]);
    expect(admitted.length).toBeGreaterThanOrEqual(12);
    expect(admitted.every((r) => r.allocations[0]?.devices.length === 1)).toBe(true);

    // What was given back comes free once the machines let go; what was not is held by one owner each.
    const kept = async () =>
      (
        await t.db.query<{ n: number }>(
          `select count(*) as n from reservations where pool_id = $1 and state in ('booked', 'active')`,
          [fleet.poolId],
        )
      )[0]!.n;
    const releasing = () =>
      t.db.query(`select 1 from reservations where pool_id = $1 and state = 'releasing'`, [fleet.poolId]);
    await expect.poll(async () => (await releasing()).length, { timeout: 30_000 }).toBe(0);
    running = false;
    await Promise.all([watcher, machines]);
    expect(instants.length).toBeGreaterThan(5);
    expect(instants.flat()).toEqual([]);
    expect(await bookErrors(t.db)).toEqual([]);
    const held = await t.db.query<{ node_id: string; allocated: number; live: number }>(
      `select c.node_id, c.allocated, (select count(*) from device_bookings b join devices d on d.no = b.device_no
         where d.node_id = c.node_id and b.released_at is null) as live
       from node_capacity c where c.pool_id = $1`,
      [fleet.poolId],
    );
    for (const node of held) expect(node.allocated).toBe(node.live);
    expect(held.reduce((a, n) => a + n.allocated, 0)).toBe(await kept());
  });
});
