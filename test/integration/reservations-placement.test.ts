/** reservations.create through the API: what may be asked for, where it lands, and what a refusal says. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type CallOptions, type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let reconcile: Controllers;
let owner: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  reconcile = controllers(t.db);
  await seedRoot(t.db);
  owner = await seedTenant(t.db, 'owner');
});
afterAll(() => t?.close());
beforeEach(async () => {
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 2, gpus: 8 });
});

const gpu = (count: number, ...selectors: object[]) => ({
  class: 'gpu' as const,
  count,
  ...(selectors.length === 0 ? {} : { selectors }),
});
interface Ask {
  readonly devices?: object[];
  readonly durationSeconds?: number;
  readonly poolId?: string;
}
const reserve = (ask: Ask = {}, who = owner, o: CallOptions = {}) =>
  api.call(
    who,
    'reservations.create',
    { body: { poolId: fleet.poolId, devices: [gpu(1)], durationSeconds: 3600, ...ask } as never },
    o,
  );
/** Released, and let go by the machine. */
async function giveBack(id: string): Promise<void> {
  await api.call(owner, 'reservations.release', { id });
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
}
const refusal = (ask: Ask, who = owner) =>
  reserve(ask, who).then(
    () => undefined,
    (e: unknown) => (e as { body: Record<string, unknown> }).body,
  );
describe('what and where', () => {
  test.each<[string, object[], string]>([
    ['no device', [], 'devices'],
    ['zero of a class', [gpu(0)], 'devices[0].count'],
    ['65 of a class', [gpu(65)], 'devices[0].count'],
    ['65 in all', [gpu(32), gpu(33)], 'devices'],
    ['a class that is none', [{ class: 'tpu', count: 1 }], 'devices[0].class'],
    ['an unknown field', [{ class: 'gpu', count: 1, model: 'h100' }], 'devices[0].model'],
    [
      'a selector that is none',
      [gpu(1, { attribute: 'model', op: 'like', value: 'h%' })],
      'devices[0].selectors[0].op',
    ],
    ['a range without ends', [gpu(1, { attribute: 'slot', op: 'range' })], 'devices[0].selectors[0]'],
    ['a list without values', [gpu(1, { attribute: 'model', op: 'in', values: [] })], 'devices[0].selectors[0].values'],
  ])('%s is refused by the path of the field', async (_, devices, field) => {
    expect(await refusal({ devices })).toMatchObject({
      code: 'INVALID_REQUEST',
      errors: expect.arrayContaining([expect.objectContaining({ field })]),
    });
  });

  test('all devices are of one node, and the node that has the least left over is filled first', async () => {
    const first = await reserve({ devices: [gpu(5)] });
    expect(new Set(first.allocations[0]!.devices.map((d) => d.id)).size).toBe(5);
    const second = await reserve({ devices: [gpu(4)] });
    const third = await reserve({ devices: [gpu(3)] });
    const nodes = [first, second, third].map((r) => r.allocations.map((a) => a.nodeId));
    expect(nodes.every((n) => n.length === 1)).toBe(true);
    expect(nodes[2]).toEqual(nodes[0]);
    expect(nodes[1]).not.toEqual(nodes[0]);
    expect(await bookErrors(t.db)).toEqual([]);
  });

  test('selectors compare typed attributes: by value, in a list, in a range, by version, by presence', async () => {
    await t.db.query(
      `update devices set attributes = jsonb_build_object('model', case when slot < 4 then 'h100' else 'h200' end, 'slot', slot,
         'driver', '550.' || (50 + slot) || '.15', 'nvlink', slot % 2 = 0) || case when slot = 7 then '{"special": true}' else '{}'::jsonb end
       where node_id = $1`,
      [fleet.nodeIds[0]!],
    );
    await t.db.query(`update devices set attributes = '{"model": "a100", "slot": "0"}' where node_id = $1`, [
      fleet.nodeIds[1]!,
    ]);
    const slots = async (count: number, ...selectors: object[]) => {
      const made = await reserve({ devices: [gpu(count, ...selectors)] });
      const found = await t.db.query<{ slot: number; node_id: string }>(
        'select slot, node_id from devices where id = any($1) order by slot',
        [made.allocations[0]!.devices.map((d) => d.id)],
      );
      await giveBack(made.id);
      expect(new Set(found.map((d) => d.node_id)).size).toBe(1);
      return found.map((d) => d.slot);
    };
    const at = (attribute: string, op: string, more: object) => ({ attribute, op, ...more });
    expect(await slots(4, at('model', 'equals', { value: 'h200' }))).toEqual([4, 5, 6, 7]);
    expect(await slots(8, at('model', 'in', { values: ['h100', 'h200'] }))).toHaveLength(8);
    expect(await slots(3, at('slot', 'range', { min: 2, max: 4 }))).toEqual([2, 3, 4]);
    // 550.9 is older than 550.50, whatever the letters say.
    expect(await slots(2, at('driver', 'range', { min: '550.56', max: '550.57.15' }))).toEqual([6, 7]);
    expect(await slots(8, at('driver', 'range', { min: '550.9' }))).toHaveLength(8);
    expect(await slots(1, at('special', 'exists', { value: true }))).toEqual([7]);
    expect(
      await slots(7, at('special', 'exists', { value: false }), at('model', 'in', { values: ['h100', 'h200'] })),
    ).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(await slots(2, at('nvlink', 'equals', { value: true }), at('model', 'equals', { value: 'h100' }))).toEqual([
      0, 2,
    ]);
    // A number is not its text.
    expect(await slots(1, at('slot', 'equals', { value: 0 }))).toEqual([0]);
    for (const s of [
      at('slot', 'equals', { value: '3' }),
      at('model', 'range', { min: 1 }),
      at('colour', 'equals', { value: 'red' }),
    ]) {
      expect(await refusal({ devices: [gpu(1, s)] })).toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
    }
    // Two parts whose conditions overlap are given devices of their own.
    const made = await reserve({
      devices: [gpu(4, at('nvlink', 'exists', { value: true })), gpu(4, at('nvlink', 'equals', { value: true }))],
    });
    expect(new Set(made.allocations[0]!.devices.map((d) => d.id)).size).toBe(8);
    await giveBack(made.id);
    expect(await bookErrors(t.db)).toEqual([]);
  });
});

describe('a refusal says what was lacking', () => {
  test.each<[string, () => Ask | Promise<Ask>, object]>([
    [
      'too many for any node',
      () => ({ devices: [gpu(9)] }),
      { code: 'TOO_FEW_DEVICES', message: 'has 8 gpu, wanted 9', nodes: 2 },
    ],
    [
      'a class that no node has',
      () => ({ devices: [{ class: 'disk', count: 1 }] }),
      { code: 'TOO_FEW_DEVICES', message: 'has 0 disk, wanted 1', nodes: 2 },
    ],
    [
      'in use',
      async () => {
        await reserve({ devices: [gpu(6)] });
        await reserve({ devices: [gpu(6)] });
        return { devices: [gpu(3)] };
      },
      { code: 'DEVICES_IN_USE', message: '2 matching gpu free, wanted 3', nodes: 2 },
    ],
    [
      'a selector that nothing matches',
      () => ({ devices: [gpu(1, { attribute: 'model', op: 'equals', value: 'b300' })] }),
      { code: 'SELECTOR_MISMATCH', message: '0 gpu with model = b300, wanted 1', nodes: 2 },
    ],
    [
      'nodes that are closed',
      async () => {
        await api.call(owner, 'nodes.cordon', { id: fleet.nodeIds[0]!, body: { reason: 'fans' } });
        await t.db.query(`update nodes set connectivity = 'unreachable' where id = $1`, [fleet.nodeIds[1]!]);
        await t.db.query('select node_refresh($1)', [fleet.nodeIds[1]!]);
        return {};
      },
      { code: 'NODE_UNSCHEDULABLE', message: 'cordoned: fans', nodes: 1 },
    ],
  ])('%s', async (_, ask, reason) => {
    const wanted = await ask();
    const before = (await t.db.query('select count(*) as n from device_bookings'))[0];
    const body = (await refusal(wanted))!;
    expect(body).toMatchObject({ code: 'CAPACITY_UNAVAILABLE', status: 409, retry: 'same-key' });
    expect(body['reasons']).toContainEqual(expect.objectContaining(reason));
    expect((await t.db.query('select count(*) as n from device_bookings'))[0]).toEqual(before);
  });

  test('a pool without nodes', async () => {
    const empty = await seedFleet(t.db, { tenantId: owner.id, nodes: 0 });
    expect(await refusal({ poolId: empty.poolId })).toMatchObject({
      code: 'CAPACITY_UNAVAILABLE',
      free: 0,
      reasons: [{ code: 'NO_NODES' }],
    });
  });
});
