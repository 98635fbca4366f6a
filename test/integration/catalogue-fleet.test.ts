/** Join tokens, nodes, devices and capacity through the API. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { sha256Hex } from '#core/kernel/canonical-json.ts';
import { toMillis } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let root: TestTenant;
let owner: TestTenant;
let guest: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db, { joinEndpoint: { gateway: 'gw.test:7443', caPin: 'sha256/abc' } });
  root = await seedRoot(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  owner = await seedTenant(t.db, 'owner');
  guest = await seedTenant(t.db, 'guest');
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 3, gpus: 4 });
});

const refused = (code: string) => expect.objectContaining({ code });
const reserve = (who: TestTenant, count: number) =>
  api.call(who, 'reservations.create', {
    body: { poolId: fleet.poolId, devices: [{ class: 'gpu', count }], durationSeconds: 600 },
  });
const gpus = async (who = owner) => (await api.call(who, 'capacity.get', { poolId: fleet.poolId })).resources[0]!;

describe('join tokens', () => {
  test('the secret is shown once, is stored as a hash alone, and is in no event, audit record or replay', async () => {
    const body = { poolId: fleet.poolId, name: 'rack-1', ttlSeconds: 600, maxUses: 3 };
    const made = await api.call(owner, 'joinTokens.create', { body }, { key: 'k' });
    expect(made).toMatchObject({ poolId: fleet.poolId, siteId: fleet.siteId, name: 'rack-1', maxUses: 3, uses: 0 });
    expect(toMillis(made.expiresAt) - toMillis(made.createdAt)).toBe(600_000);
    const { token, joinCommand, ...shown } = made;
    expect(joinCommand).toBe(`bcd join --gateway gw.test:7443 --token ${token} --ca-pin sha256/abc`);
    const secret = token!.split('.').at(-1)!;
    expect(await api.call(owner, 'joinTokens.create', { body }, { key: 'k' })).toEqual(shown);
    expect((await api.call(owner, 'joinTokens.list', { poolId: fleet.poolId })).items).toEqual([shown]);
    const [row] = await t.db.query<{ secret_hash: string }>('select secret_hash from join_tokens where id = $1', [
      made.id,
    ]);
    expect(row!.secret_hash).toBe(sha256Hex(secret));
    for (const table of ['events', 'audit_events', 'idempotency_keys', 'authz_resources', 'join_tokens']) {
      const found = await t.db.query(`select 1 from ${table} x where x::text like '%' || $1 || '%'`, [secret]);
      expect([table, found]).toEqual([table, []]);
    }
  });

  test('revoking is once and for all, whoever repeats it', async () => {
    const made = await api.call(owner, 'joinTokens.create', { body: { poolId: fleet.poolId } });
    await expect(api.call(guest, 'joinTokens.revoke', { id: made.id })).rejects.toEqual(refused('NOT_FOUND'));
    const revoked = await api.call(owner, 'joinTokens.revoke', { id: made.id });
    expect(revoked.revokedAt).toBeDefined();
    expect(await api.call(owner, 'joinTokens.revoke', { id: made.id })).toEqual(revoked);
    const events = await t.db.query<{ type: string }>('select type from events where subject_id = $1 order by seq', [
      made.id,
    ]);
    expect(events.map((e) => e.type)).toEqual(['join_token.created', 'join_token.revoked']);
    expect((await api.call(guest, 'joinTokens.list', {})).items).toEqual([]);
  });
});

describe('nodes and devices', () => {
  test('a cordon takes a node out of capacity and says why; what runs there goes on', async () => {
    const held = await reserve(owner, 2);
    const id = held.allocations[0]!.nodeId;
    expect(await gpus()).toMatchObject({ total: 12, allocatable: 12, allocated: 2, available: 10, largestFree: 4 });
    const before = await api.call(owner, 'nodes.get', { id });
    const cordoned = await api.call(owner, 'nodes.cordon', { id, body: { reason: 'new fans' } });
    expect(cordoned).toMatchObject({
      cordoned: true,
      cordonReason: 'new fans',
      schedulable: false,
      reasons: ['cordoned: new fans'],
      version: before.version + 1,
    });
    expect(await gpus()).toMatchObject({ total: 12, allocatable: 8, allocated: 2, available: 8 });
    const capacity = await api.call(owner, 'capacity.get', { poolId: fleet.poolId });
    expect(capacity.nodes).toEqual({ total: 3, schedulable: 2 });
    expect(capacity.reasons).toEqual([{ reason: 'cordoned: new fans', nodes: 1, example: cordoned.name }]);
    expect(await api.call(owner, 'reservations.get', { id: held.id })).toMatchObject({ state: 'booked' });
    // Nothing more lands there, although two of its devices are free.
    const more = await Promise.all([1, 2, 3, 4].map(() => reserve(owner, 2)));
    expect(more.flatMap((r) => r.allocations.map((a) => a.nodeId))).not.toContain(id);
    await expect(reserve(owner, 1)).rejects.toMatchObject({
      code: 'CAPACITY_UNAVAILABLE',
      body: {
        free: 0,
        reasons: expect.arrayContaining([
          { code: 'NODE_UNSCHEDULABLE', message: 'cordoned: new fans', nodes: 1, example: cordoned.name },
        ]),
      },
    });
    const open = await api.call(owner, 'nodes.uncordon', { id });
    expect(open).toMatchObject({ cordoned: false, schedulable: true, reasons: [] });
    expect(open).not.toHaveProperty('cordonReason');
    expect((await reserve(owner, 2)).allocations[0]!.nodeId).toBe(id);
  });

  test('cordoning what is cordoned changes nothing, unless it gives a reason; the version guards it', async () => {
    const id = fleet.nodeIds[0]!;
    const first = await api.call(owner, 'nodes.cordon', { id, body: {} });
    expect(await api.call(owner, 'nodes.cordon', { id, body: {} })).toEqual(first);
    await expect(api.call(owner, 'nodes.uncordon', { id }, { ifMatch: first.version - 1 })).rejects.toEqual(
      refused('VERSION_CONFLICT'),
    );
    const second = await api.call(owner, 'nodes.cordon', { id, body: { reason: 'disk' } }, { ifMatch: first.version });
    expect(second).toMatchObject({ cordonReason: 'disk', version: first.version + 1 });
    await api.call(owner, 'nodes.uncordon', { id });
    const events = await t.db.query<{ type: string }>(
      `select type from events where subject_id = $1 and type like 'node.%cord%' order by seq`,
      [id],
    );
    expect(events.map((e) => e.type)).toEqual(['node.cordoned', 'node.cordoned', 'node.uncordoned']);
    const { items } = await api.call(owner, 'audit.list', { resourceId: id });
    expect(items.map((a) => a.action)).toEqual([
      'compute:nodes:cordon',
      'compute:nodes:cordon',
      'compute:nodes:uncordon',
    ]);
  });

  test('a cordon and an admission at once: the node is either full or closed, never wrong', async () => {
    for (let i = 0; i < 8; i++) {
      const one = await seedFleet(t.db, { tenantId: owner.id, nodes: 1, gpus: 1 });
      const id = one.nodeIds[0]!;
      const [made] = await Promise.allSettled([
        api.call(owner, 'reservations.create', {
          body: { poolId: one.poolId, devices: [{ class: 'gpu', count: 1 }], durationSeconds: 60 },
        }),
        api.call(owner, 'nodes.cordon', { id, body: {} }),
      ]);
      const allocated = made!.status === 'fulfilled' ? 1 : 0;
      expect(
        await t.db.query('select schedulable, allocated, free from node_capacity where node_id = $1', [id]),
      ).toEqual([{ schedulable: false, allocated, free: 1 - allocated }]);
    }
  });

  test('machines belong to the tenant of their pool: whom the pool is offered to sees capacity, not machines', async () => {
    await offerPool(t.db, fleet, guest.id, 4);
    const id = fleet.nodeIds[0]!;
    for (const [name, input] of [
      ['nodes.get', { id }],
      ['nodes.cordon', { id, body: {} }],
      ['nodes.uncordon', { id }],
    ] as const) {
      await expect(api.call(guest, name, input as never)).rejects.toEqual(refused('NOT_FOUND'));
    }
    expect((await api.call(guest, 'nodes.list', {})).items).toEqual([]);
    expect((await api.call(guest, 'devices.list', { poolId: fleet.poolId })).items).toEqual([]);
    expect(await gpus(guest)).toMatchObject({ total: 12 });
    expect((await api.call(root, 'nodes.get', { id })).id).toBe(id);
  });

  test('lists by pool, class, schedulable and free', async () => {
    const other = await seedFleet(t.db, { tenantId: owner.id, nodes: 1, gpus: 0 });
    const id = fleet.nodeIds[0]!;
    await api.call(owner, 'nodes.cordon', { id, body: {} });
    const nodes = async (input: object) =>
      (await api.call(owner, 'nodes.list', input)).items.map((n) => n.id as string).sort();
    expect(await nodes({})).toEqual([...fleet.nodeIds, ...other.nodeIds].sort());
    expect(await nodes({ poolId: other.poolId })).toEqual(other.nodeIds);
    expect(await nodes({ class: 'gpu', schedulable: 'true' })).toEqual(fleet.nodeIds.filter((n) => n !== id));
    expect(await nodes({ schedulable: 'false' })).toEqual([id]);
    expect(await nodes({ class: 'disk' })).toEqual([]);
    const devices = async (input: object) => (await api.call(owner, 'devices.list', { limit: 200, ...input })).items;
    expect(await devices({ poolId: fleet.poolId })).toHaveLength(12);
    const held = await reserve(owner, 3);
    const busy = await devices({ poolId: fleet.poolId, free: 'false' });
    expect(busy.filter((d) => d.allocationId === held.allocations[0]!.id)).toHaveLength(3);
    // Held, or on a closed node: neither can be booked.
    expect(busy).toHaveLength(3 + 4);
    expect(await devices({ poolId: fleet.poolId, free: 'true' })).toHaveLength(5);
    expect(await devices({ nodeId: id, class: 'gpu' })).toHaveLength(4);
  });

  test('a device that is sick, gone, of unknown health or not for booking is counted as what it is', async () => {
    const change = async (slot: number, what: string) => {
      await t.db.query(`update devices set ${what} where node_id = $1 and slot = $2`, [fleet.nodeIds[0]!, slot]);
      await t.db.query('select node_refresh($1)', [fleet.nodeIds[0]!]);
      const { total, allocatable, available } = await gpus();
      return [total, allocatable, available];
    };
    expect(await change(0, `health = 'unhealthy'`)).toEqual([12, 11, 11]);
    expect(await change(1, 'present = false')).toEqual([12, 10, 10]);
    expect(await change(2, `health = 'unknown'`)).toEqual([12, 9, 9]);
    expect(await change(3, 'bookable = false')).toEqual([11, 8, 8]);
    expect(await change(0, `health = 'healthy'`)).toEqual([11, 9, 9]);
  });

  test('a new region of a site reaches what policies read of everything in it', async () => {
    const held = await reserve(owner, 1);
    const regionOf = async (id: string) =>
      (
        await t.db.query<{ region: string | null }>(
          `select attributes ->> 'region' as region from authz_resources where id = $1`,
          [id],
        )
      )[0]?.region;
    const made = await api.call(owner, 'pools.create', { body: { siteId: fleet.siteId, name: 'second' } });
    for (const region of ['eu-1', 'us-2', null]) {
      await api.call(owner, 'sites.update', { id: fleet.siteId, body: { iamRegion: region } });
      expect([await regionOf(fleet.siteId), await regionOf(made.id), await regionOf(held.id)]).toEqual([
        region,
        region,
        region,
      ]);
    }
  });
});
