/** Offers and quotas through the API: what is granted, what is charged, and who may say so. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let owner: TestTenant;
let guest: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  await seedRoot(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  owner = await seedTenant(t.db, 'owner');
  guest = await seedTenant(t.db, 'guest');
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 1, gpus: 8 });
});

const refused = (code: string) => expect.objectContaining({ code });
const offer = (quota: Record<string, number>) =>
  api.call(owner, 'offers.create', { body: { poolId: fleet.poolId, tenantId: guest.id, quota } });
const set = (limit: number | null, tenant = guest) =>
  api.call(owner, 'quotas.set', { body: { poolId: fleet.poolId, tenantId: tenant.id, resource: 'gpu', limit } });
const reserve = (who: TestTenant, count: number) =>
  api.call(who, 'reservations.create', {
    body: { poolId: fleet.poolId, devices: [{ class: 'gpu', count }], durationSeconds: 600 },
  });
const quotas = async (who: TestTenant, input: { tenantId?: string } = {}) =>
  (await api.call(who, 'quotas.get', { poolId: fleet.poolId, ...input })).items.map(
    (q) => `${q.resource}: ${q.used} of ${q.limit} by ${q.source}`,
  );

test('an offer grants what it names and nothing else, and follows its edits', async () => {
  const o = await offer({ gpu: 2, disk: 1 });
  expect(await quotas(guest)).toEqual(['disk: 0 of 1 by offer', 'gpu: 0 of 2 by offer']);
  await reserve(guest, 2);
  await expect(reserve(guest, 1)).rejects.toMatchObject({
    code: 'QUOTA_EXCEEDED',
    body: { resource: 'gpu', limit: 2, used: 2, wanted: 1 },
  });
  await api.call(owner, 'offers.update', { id: o.id, body: { quota: { gpu: 3 } } });
  expect(await quotas(guest)).toEqual(['disk: 0 of 0 by offer', 'gpu: 2 of 3 by offer']);
  await reserve(guest, 1);
  // Less than is held: nothing is taken back, and nothing more is given.
  await api.call(owner, 'offers.update', { id: o.id, body: { quota: { gpu: 1 } } });
  expect(await quotas(guest)).toEqual(['disk: 0 of 0 by offer', 'gpu: 3 of 1 by offer']);
  await expect(reserve(guest, 1)).rejects.toEqual(refused('QUOTA_EXCEEDED'));
  // A class that the offer does not name is refused as one that is granted zero.
  await t.db.query(
    `insert into devices (id, node_id, pool_id, class, stable_id, health)
     select new_id('dev'), $1, $2, 'nic.vf', 'vf0', 'healthy'`,
    [fleet.nodeIds[0]!, fleet.poolId],
  );
  await t.db.query('select node_refresh($1)', [fleet.nodeIds[0]!]);
  const body = { poolId: fleet.poolId, devices: [{ class: 'nic.vf' as const, count: 1 }], durationSeconds: 600 };
  await expect(api.call(guest, 'reservations.create', { body })).rejects.toMatchObject({
    code: 'QUOTA_EXCEEDED',
    body: { resource: 'nic.vf', limit: 0 },
  });
  expect((await bookErrors(t.db)).filter((e) => !e.startsWith('quota in use above'))).toEqual([]);
});

test('one offer a pool and tenant; the owner needs none and cannot make one to itself', async () => {
  await offer({ gpu: 1 });
  await expect(offer({ gpu: 2 })).rejects.toEqual(refused('CONFLICT'));
  expect(await quotas(guest)).toEqual(['gpu: 0 of 1 by offer']);
  const toItself = api.call(owner, 'offers.create', {
    body: { poolId: fleet.poolId, tenantId: owner.id, quota: { gpu: 1 } },
  });
  await expect(toItself).rejects.toMatchObject({ code: 'INVALID_REQUEST', body: { errors: [{ field: 'tenantId' }] } });
  await reserve(owner, 8);
  expect(await quotas(owner)).toEqual(['gpu: 8 of null by owner']);
});

test('what the owner sets stands above the offer until it is taken back', async () => {
  const o = await offer({ gpu: 4 });
  expect(await set(1)).toEqual({
    tenantId: guest.id,
    poolId: fleet.poolId,
    resource: 'gpu',
    limit: 1,
    used: 0,
    source: 'set',
  });
  await api.call(owner, 'offers.update', { id: o.id, body: { quota: { gpu: 6 } } });
  expect(await quotas(guest)).toEqual(['gpu: 0 of 1 by set']);
  await expect(reserve(guest, 2)).rejects.toEqual(refused('QUOTA_EXCEEDED'));
  expect(await set(null)).toMatchObject({ limit: 6, source: 'offer' });
  await reserve(guest, 5);
  expect(await quotas(guest)).toEqual(['gpu: 5 of 6 by offer']);
  // The owner sees what each tenant holds; it may cap itself as well, and take that back.
  expect(await quotas(owner, { tenantId: guest.id })).toEqual(['gpu: 5 of 6 by offer']);
  expect(await set(2, owner)).toMatchObject({ limit: 2, source: 'set' });
  await expect(reserve(owner, 3)).rejects.toEqual(refused('QUOTA_EXCEEDED'));
  expect(await set(null, owner)).toMatchObject({ limit: null, source: 'owner' });
  await reserve(owner, 3);
  const told = await t.db.query<{ tenant_id: string; n: number }>(
    `select tenant_id, count(*) as n from events where type = 'quota.set' and subject_id = $1 group by 1`,
    [`${fleet.poolId}.${guest.id}`],
  );
  expect(Object.fromEntries(told.map((r) => [r.tenant_id, r.n]))).toEqual({ [owner.id]: 2, [guest.id]: 2 });
  expect((await bookErrors(t.db)).filter((e) => e.includes(guest.id) || e.includes(owner.id))).toEqual([]);
});

test('taking an offer back refuses new requests and takes nothing away; what is held is given back as ever', async () => {
  const o = await offer({ gpu: 4 });
  const held = await reserve(guest, 3);
  await api.call(owner, 'offers.delete', { id: o.id });
  await expect(reserve(guest, 1)).rejects.toEqual(refused('NOT_FOUND'));
  expect(await api.call(guest, 'reservations.get', { id: held.id })).toMatchObject({ state: 'booked' });
  const renewed = await api.call(guest, 'reservations.renew', { id: held.id, body: { durationSeconds: 1200 } });
  expect(renewed).toMatchObject({ state: 'booked' });
  expect(await quotas(owner, { tenantId: guest.id })).toEqual(['gpu: 3 of 0 by offer']);
  expect(await api.call(guest, 'reservations.release', { id: held.id })).toMatchObject({ state: 'releasing' });
  await offer({ gpu: 5 });
  expect(await quotas(guest)).toEqual(['gpu: 3 of 5 by offer']);
});

test('many at once never go past the limit, and the stored use is the recount', async () => {
  await offer({ gpu: 5 });
  const asked = await Promise.allSettled(Array.from({ length: 24 }, () => reserve(guest, 1)));
  const admitted = asked.filter((a) => a.status === 'fulfilled');
  expect(admitted).toHaveLength(5);
  for (const a of asked) if (a.status === 'rejected') expect(a.reason).toEqual(refused('QUOTA_EXCEEDED'));
  expect(await quotas(guest)).toEqual(['gpu: 5 of 5 by offer']);
  expect((await bookErrors(t.db)).filter((e) => e.includes(guest.id))).toEqual([]);
});
