/** What can be read back: usage with its sums, the audit trail, events, and the leases of the platform. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { acquireLease } from '#db/leases.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedStranger, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let root: TestTenant;
let alice: TestTenant;
let bob: TestTenant;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  root = await seedRoot(t.db);
  [alice, bob] = [await seedTenant(t.db, 'alice'), await seedTenant(t.db, 'bob')];
});
afterAll(() => t?.close());

const refused = (code: string) => expect.objectContaining({ code });

test('usage: hours half-open, by reservation and meter, with sums over everything that the filters select', async () => {
  const { poolId } = await seedFleet(t.db, { tenantId: alice.id, nodes: 0 });
  const [one, two] = [newId('reservation'), newId('reservation')];
  const write = (tenant: TestTenant, reservation: string, hour: string, meter: string, seconds: number) =>
    t.db.query(
      `insert into usage_windows (allocation_id, hour, meter, reservation_id, tenant_id, pool_id, device_seconds, sealed)
       values ($1, $2, $3, $4, $5, $6, $7, true)`,
      [newId('allocation'), hour, meter, reservation, tenant.id, poolId, seconds],
    );
  for (const hour of ['2026-11-01T10:00:00Z', '2026-11-01T11:00:00Z', '2026-11-01T12:00:00Z']) {
    await write(alice, one, hour, 'gpu.h100.hours', 3600);
    await write(alice, two, hour, 'gpu.h100.hours', 1);
    await write(alice, two, hour, 'disk.hours', 7200);
    await write(bob, one, hour, 'gpu.h100.hours', 999_999);
  }
  const read = async (input: object) => {
    const { items, sums } = await api.call(alice, 'usage.list', { limit: 2, ...input });
    return { items: items.length, sums: Object.fromEntries(sums.map((s) => [s.meter, [s.deviceSeconds, s.hours]])) };
  };
  expect(await read({})).toEqual({
    items: 2,
    sums: { 'gpu.h100.hours': [10_803, '3.0008'], 'disk.hours': [21_600, '6.0000'] },
  });
  const window = { from: '2026-11-01T11:00:00Z', to: '2026-11-01T12:00:00Z' };
  expect((await read(window)).sums).toEqual({ 'gpu.h100.hours': [3601, '1.0003'], 'disk.hours': [7200, '2.0000'] });
  // The same instants with another offset are the same window.
  const berlin = { from: '2026-11-01T12:00:00+01:00', to: '2026-11-01T13:00:00+01:00' };
  expect(await read(berlin)).toEqual(await read(window));
  expect((await read({ reservationId: two, meter: 'gpu.h100.hours' })).sums).toEqual({
    'gpu.h100.hours': [3, '0.0008'],
  });
  expect(await read({ from: window.to, to: window.from })).toEqual({ items: 0, sums: {} });
  for (const from of ['2026-11-01T10:00:00', '2026-11-01', 'yesterday']) {
    await expect(api.call(alice, 'usage.list', { from })).rejects.toMatchObject({
      code: 'INVALID_REQUEST',
      body: { errors: [{ field: 'from' }] },
    });
  }
});

test('audit: who was admitted to what, by resource and action; reads and refusals leave nothing', async () => {
  const powerless = await seedStranger(t.db, alice.id);
  const site = await api.call(alice, 'sites.create', { body: { name: 'audited' } });
  await api.call(alice, 'sites.update', { id: site.id, body: { labels: { a: 'b' } } });
  await api.call(alice, 'sites.get', { id: site.id });
  await expect(api.call(alice, 'sites.create', { body: { name: 'audited' } })).rejects.toEqual(refused('CONFLICT'));
  await expect(api.call(bob, 'sites.delete', { id: site.id })).rejects.toEqual(refused('NOT_FOUND'));
  await expect(api.call(powerless, 'sites.delete', { id: site.id })).rejects.toEqual(refused('PERMISSION_DENIED'));
  const { items } = await api.call(alice, 'audit.list', { resourceId: site.id });
  expect(items.map((a) => [a.action, a.outcome, a.resourceType, a.context['identityId']])).toEqual([
    ['compute:sites:create', 'allow', 'compute-site', alice.identityId],
    ['compute:sites:update', 'allow', 'compute-site', alice.identityId],
  ]);
  const updates = await api.call(alice, 'audit.list', { resourceId: site.id, action: 'compute:sites:update' });
  expect(updates.items).toEqual([items[1]]);
  expect((await api.call(bob, 'audit.list', {})).items).toEqual([]);
  await expect(api.call(powerless, 'audit.list', {})).rejects.toEqual(refused('PERMISSION_DENIED'));
});

test('events: of the own tenant, by type and family, with a cursor each', async () => {
  const from = (await api.call(alice, 'events.list', { limit: 200 })).nextCursor!;
  const site = await api.call(alice, 'sites.create', { body: { name: 'told' } });
  await api.call(alice, 'pools.create', { body: { siteId: site.id, name: 'told' } });
  await api.call(bob, 'sites.create', { body: { name: 'told' } });
  const types = async (input: object) =>
    (await api.call(alice, 'events.list', { cursor: from, ...input })).items.map((e) => e.type);
  // Readable is what stands below the oldest running transaction, be it of another test.
  await expect.poll(() => types({}), { timeout: 30_000 }).toEqual(['site.created', 'pool.created']);
  expect(await types({ types: 'site.*' })).toEqual(['site.created']);
  expect(await types({ types: 'pool.created, site.created' })).toEqual(['site.created', 'pool.created']);
  expect(await types({ types: 'node.*' })).toEqual([]);
  const [first, second] = (await api.call(alice, 'events.list', { cursor: from })).items;
  expect(first).toMatchObject({ subject: { kind: 'site', id: site.id }, data: { id: site.id, name: 'told' } });
  expect((await api.call(alice, 'events.list', { cursor: first!.cursor })).items).toEqual([second]);
});

test('leases are for the operators of the platform alone', async () => {
  await acquireLease(t.db, 'shard:7', 'host-a', 30);
  await acquireLease(t.db, 'gateway:g1', 'host-b', 30);
  await t.db.query(`update leases set expires_at = compute_now() where name = 'gateway:g1'`);
  const all = await api.call(root, 'leases.list', {});
  expect(all.items).toMatchObject([
    { name: 'gateway:g1', holder: 'host-b', epoch: 1, held: false },
    { name: 'gateway:kit', held: true },
    { name: 'shard:7', holder: 'host-a', epoch: 1, held: true },
  ]);
  expect((await api.call(root, 'leases.list', { prefix: 'shard:' })).items).toEqual([all.items[2]]);
  // A prefix is text, not a pattern.
  expect((await api.call(root, 'leases.list', { prefix: '%' })).items).toEqual([]);
  await expect(api.call(alice, 'leases.list', {})).rejects.toEqual(refused('PERMISSION_DENIED'));
});
