/** Sites, pools, offers and quotas through the API: whose they are, who sees them, what goes with every change. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestApi, testApi } from '#kit/api.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedStranger, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let owner: TestTenant;
let guest: TestTenant;
let stranger: TestTenant;
let powerless: TestTenant;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  await seedRoot(t.db);
  [owner, guest, stranger] = [
    await seedTenant(t.db, 'owner'),
    await seedTenant(t.db, 'guest'),
    await seedTenant(t.db, 'stranger'),
  ];
  powerless = await seedStranger(t.db, owner.id);
});
afterAll(() => t?.close());

const refused = (code: string) => expect.objectContaining({ code });
let names = 0;
const fresh = (what: string) => `${what}-${++names}`;
const site = (who = owner, name = fresh('site')) => api.call(who, 'sites.create', { body: { name } });
const pool = (siteId: string, who = owner, name = fresh('pool')) =>
  api.call(who, 'pools.create', { body: { siteId, name, gpuModel: 'h100' } });
const offer = (poolId: string, quota: Record<string, number> = { gpu: 4 }, to = guest) =>
  api.call(owner, 'offers.create', { body: { poolId, tenantId: to.id, quota } });
const fleet = (o: { nodes?: number; gpus?: number } = {}): Promise<Fleet> =>
  seedFleet(t.db, { tenantId: owner.id, nodes: o.nodes ?? 1, gpus: o.gpus ?? 4, name: fresh('fleet') });
const reserve = (who: TestTenant, poolId: string, count: number) =>
  api.call(who, 'reservations.create', { body: { poolId, devices: [{ class: 'gpu', count }], durationSeconds: 600 } });

/** Event types, audit actions and whether there is an authz row, of one thing. */
async function trail(id: string) {
  const [row] = await t.db.query<{ events: string[]; actions: string[]; projected: boolean }>(
    `select coalesce((select array_agg(type order by seq) from events where subject_id = $1), '{}') as events,
       coalesce((select array_agg(action order by seq) from audit_events where resource_id = $1), '{}') as actions,
       exists (select 1 from authz_resources where id = $1) as projected`,
    [id],
  );
  return row!;
}

describe('every change', () => {
  test('of a site goes with its event, its audit record and its authz row', async () => {
    const made = await api.call(
      owner,
      'sites.create',
      { body: { name: fresh('site'), kind: 'dedicated', iamRegion: 'eu-1', labels: { rack: 'r1' } } },
      { headers: { 'x-request-id': 'req-of-mine', traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` } },
    );
    expect(made).toMatchObject({ tenantId: owner.id, kind: 'dedicated', iamRegion: 'eu-1', version: 1 });
    expect(await api.call(owner, 'sites.get', { id: made.id })).toEqual(made);
    const changed = await api.call(owner, 'sites.update', { id: made.id, body: { iamRegion: null } });
    expect(changed).toMatchObject({ name: made.name, labels: { rack: 'r1' }, version: 2 });
    expect(changed).not.toHaveProperty('iamRegion');
    expect(await trail(made.id)).toEqual({
      events: ['site.created', 'site.updated'],
      actions: ['compute:sites:create', 'compute:sites:update'],
      projected: true,
    });
    const { items } = await api.call(owner, 'audit.list', { resourceId: made.id });
    expect(items[0]).toMatchObject({
      outcome: 'allow',
      context: { identityId: owner.identityId, sessionKind: 'user', requestId: 'req-of-mine' },
    });
    await api.call(owner, 'sites.delete', { id: made.id });
    expect(await trail(made.id)).toMatchObject({ events: expect.arrayContaining(['site.deleted']), projected: false });
    await expect(api.call(owner, 'sites.get', { id: made.id })).rejects.toEqual(refused('NOT_FOUND'));
  });

  test('of an offer is told to both sides', async () => {
    const { poolId } = await fleet();
    const made = await offer(poolId);
    await api.call(owner, 'offers.update', { id: made.id, body: { quota: { gpu: 5 } } });
    await api.call(owner, 'offers.delete', { id: made.id });
    const rows = await t.db.query<{ tenant_id: string; types: string[] }>(
      'select tenant_id, array_agg(type order by seq) as types from events where subject_id = $1 group by 1',
      [made.id],
    );
    const types = ['offer.created', 'offer.updated', 'offer.deleted'];
    expect(Object.fromEntries(rows.map((r) => [r.tenant_id, r.types]))).toEqual({
      [owner.id]: types,
      [guest.id]: types,
    });
  });

  test('replays under its key, also when the thing is gone by then, and refuses the key for another request', async () => {
    const a = await site();
    const calls = [
      ['sites.create', { body: { name: fresh('site') } }, { body: { name: fresh('site') } }],
      ['sites.update', { id: a.id, body: { labels: { a: 'b' } } }, { id: a.id, body: { labels: {} } }],
      ['sites.delete', { id: a.id }, { id: (await site()).id }],
    ] as const;
    const before = new Map<string, unknown>();
    for (const [name, input, other] of calls) {
      const o = { key: `key-of-${name}` };
      const answer = await api.call(owner, name, input as never, o);
      before.set(name, answer);
      const seen = await t.db.query('select count(*) as n from events');
      expect(await api.call(owner, name, input as never, o)).toEqual(answer);
      expect(await t.db.query('select count(*) as n from events')).toEqual(seen);
      await expect(api.call(owner, name, other as never, o)).rejects.toEqual(refused('IDEMPOTENCY_MISMATCH'));
    }
    // The site is gone: what was answered when it was there is answered still, and to nobody else.
    const [, update] = calls;
    expect(await api.call(owner, update[0], update[1] as never, { key: `key-of-${update[0]}` })).toEqual(
      before.get('sites.update'),
    );
    for (const who of [stranger, powerless]) {
      await expect(api.call(who, 'sites.delete', { id: a.id }, { key: 'key-of-sites.delete' })).rejects.toEqual(
        refused('NOT_FOUND'),
      );
    }
  });

  test('is refused on an older version than stands, and of many on one version one goes through', async () => {
    const s = await site();
    const p = await pool(s.id);
    const o = await offer(p.id);
    for (const [name, id, body] of [
      ['sites.update', s.id, { labels: { x: 'y' } }],
      ['pools.update', p.id, { labels: { x: 'y' } }],
      ['offers.update', o.id, { priority: 3 }],
    ] as const) {
      const edits = await Promise.allSettled(
        Array.from({ length: 6 }, () => api.call(owner, name, { id, body } as never, { ifMatch: 1 })),
      );
      expect([name, edits.filter((e) => e.status === 'fulfilled').length]).toEqual([name, 1]);
      for (const e of edits) if (e.status === 'rejected') expect(e.reason).toEqual(refused('VERSION_CONFLICT'));
      const again = await api.send(owner, name, { id, body }, { ifMatch: 2 });
      expect([again.status, again.headers.get('etag')]).toEqual([200, '"3"']);
    }
    for (const [name, id] of [
      ['offers.delete', o.id],
      ['pools.delete', p.id],
      ['sites.delete', s.id],
    ] as const) {
      await expect(api.call(owner, name, { id }, { ifMatch: 1 })).rejects.toEqual(refused('VERSION_CONFLICT'));
      await api.call(owner, name, { id }, { ifMatch: 3 });
    }
  });
});

describe('what a tenant sees', () => {
  test('another tenant finds nothing by any verb, and learns nothing from the refusal', async () => {
    const s = await site(owner, fresh('hush-hush'));
    const p = await pool(s.id, owner, fresh('hush-hush'));
    const o = await offer(p.id);
    const calls: [Parameters<TestApi['send']>[1], unknown][] = [
      ...(['get', 'update', 'delete'] as const).flatMap((v): [Parameters<TestApi['send']>[1], unknown][] => [
        [`sites.${v}`, { id: s.id, ...(v === 'update' ? { body: { labels: {} } } : {}) }],
        [`pools.${v}`, { id: p.id, ...(v === 'update' ? { body: { labels: {} } } : {}) }],
        [`offers.${v}`, { id: o.id, ...(v === 'update' ? { body: { priority: 1 } } : {}) }],
      ]),
      ['pools.create', { body: { siteId: s.id, name: 'mine-now' } }],
      ['offers.create', { body: { poolId: p.id, tenantId: stranger.id, quota: { gpu: 1 } } }],
      ['quotas.get', { poolId: p.id }],
      ['quotas.get', { poolId: p.id, tenantId: owner.id }],
      ['quotas.set', { body: { poolId: p.id, tenantId: stranger.id, resource: 'gpu', limit: 99 } }],
      ['joinTokens.create', { body: { poolId: p.id } }],
      ['capacity.get', { poolId: p.id }],
      ['reservations.create', { body: { poolId: p.id, devices: [{ class: 'gpu', count: 1 }], durationSeconds: 60 } }],
    ];
    for (const [name, input] of calls) {
      const response = await api.send(stranger, name, input);
      const text = await response.text();
      expect([name, response.status, JSON.parse(text).code]).toEqual([name, 404, 'NOT_FOUND']);
      expect(text).not.toContain('hush-hush');
    }
    for (const name of ['sites.list', 'pools.list', 'offers.list'] as const) {
      expect((await api.call(stranger, name, {})).items).toEqual([]);
    }
    expect((await trail(p.id)).events).toEqual(['pool.created']);
  });

  test('somebody of the tenant without rights is denied, and told which right is missing', async () => {
    const s = await site();
    const denied = { code: 'PERMISSION_DENIED', body: { action: 'compute:sites:get' } };
    await expect(api.call(powerless, 'sites.get', { id: s.id })).rejects.toMatchObject(denied);
    await expect(api.call(powerless, 'sites.list', {})).rejects.toEqual(refused('PERMISSION_DENIED'));
    await expect(site(powerless as never)).rejects.toEqual(refused('PERMISSION_DENIED'));
  });

  test('a pool is seen by who owns it and by whom it is offered to, for as long as it is', async () => {
    const { poolId } = await fleet();
    const seen = async (who: TestTenant) => (await api.call(who, 'pools.list', {})).items.some((p) => p.id === poolId);
    await expect(api.call(guest, 'pools.get', { id: poolId })).rejects.toEqual(refused('NOT_FOUND'));
    const o = await offer(poolId);
    expect([await seen(owner), await seen(guest), await seen(stranger)]).toEqual([true, true, false]);
    expect(await api.call(guest, 'pools.get', { id: poolId })).toMatchObject({ id: poolId, tenantId: owner.id });
    expect(await api.call(guest, 'offers.get', { id: o.id })).toEqual(o);
    expect(await api.call(guest, 'capacity.get', { poolId })).toMatchObject({ poolId });
    // Reading is all that an offer gives: the pool, the offer and the quota stay the owner's to change.
    for (const [name, input] of [
      ['pools.update', { id: poolId, body: { labels: {} } }],
      ['pools.delete', { id: poolId }],
      ['offers.update', { id: o.id, body: { quota: { gpu: 999 } } }],
      ['offers.delete', { id: o.id }],
      ['offers.create', { body: { poolId, tenantId: stranger.id, quota: { gpu: 1 } } }],
      ['quotas.set', { body: { poolId, tenantId: guest.id, resource: 'gpu', limit: 999 } }],
      ['quotas.get', { poolId, tenantId: owner.id }],
      ['joinTokens.create', { body: { poolId } }],
    ] as const) {
      await expect(api.call(guest, name, input as never)).rejects.toEqual(refused('NOT_FOUND'));
    }
    await api.call(owner, 'offers.delete', { id: o.id });
    expect([await seen(owner), await seen(guest)]).toEqual([true, false]);
    await expect(reserve(guest, poolId, 1)).rejects.toEqual(refused('NOT_FOUND'));
  });

  test('names are taken within a tenant', async () => {
    const s = await site();
    await expect(site(owner, s.name)).rejects.toEqual(refused('CONFLICT'));
    expect(await site(guest, s.name)).toMatchObject({ name: s.name });
    const [p, other] = [await pool(s.id), await pool(s.id)];
    await expect(pool(s.id, owner, p.name)).rejects.toEqual(refused('CONFLICT'));
    await expect(api.call(owner, 'pools.update', { id: other.id, body: { name: p.name } })).rejects.toEqual(
      refused('CONFLICT'),
    );
  });

  test('ways of sharing and placing that are not built are refused by the name of the field', async () => {
    const s = await site();
    const body = { siteId: s.id, name: fresh('pool'), sharing: 'mig', placer: 'pool-lease' } as const;
    await expect(api.call(owner, 'pools.create', { body })).rejects.toMatchObject({
      code: 'INVALID_REQUEST',
      body: { errors: [{ field: 'sharing' }, { field: 'placer' }] },
    });
  });
});

describe('what is in use stays', () => {
  test('a site with pools, a pool with nodes, offers, tokens or allocations is not deleted, and says why', async () => {
    const { poolId, siteId, nodeIds } = await fleet();
    const why = async (name: 'sites.delete' | 'pools.delete', id: string) =>
      (await api.send(owner, name, { id }).then((r) => r.json())) as { code: string; detail: string };
    const o = await offer(poolId);
    const token = await api.call(owner, 'joinTokens.create', { body: { poolId } });
    await reserve(guest, poolId, 1);
    const answer = await why('pools.delete', poolId);
    expect(answer).toMatchObject({ code: 'CONFLICT' });
    for (const what of ['1 node(s)', '1 offer(s)', '1 valid join token(s)', '1 live allocation(s)']) {
      expect(answer.detail).toContain(what);
    }
    expect((await why('sites.delete', siteId)).detail).toMatch(/1 pool\(s\) and 1 node\(s\)/);
    await api.call(owner, 'offers.delete', { id: o.id });
    await api.call(owner, 'joinTokens.revoke', { id: token.id });
    expect((await why('pools.delete', poolId)).detail).toMatch(/still has 1 node\(s\), 1 live allocation\(s\)$/);
    expect(nodeIds).toHaveLength(1);
    const empty = await pool(siteId);
    await api.call(owner, 'pools.delete', { id: empty.id });
    expect(await trail(empty.id)).toMatchObject({ events: ['pool.created', 'pool.deleted'], projected: false });
    expect(await t.db.query('select 1 from pools where id = $1', [poolId])).toHaveLength(1);
  });

  test('a pool that is offered at the very moment it is deleted either stays or was never offered', async () => {
    const s = await site();
    for (let i = 0; i < 10; i++) {
      const p = await pool(s.id);
      const [offered, deleted] = await Promise.allSettled([offer(p.id), api.call(owner, 'pools.delete', { id: p.id })]);
      expect([offered!.status, deleted!.status].sort()).toEqual(['fulfilled', 'rejected']);
      if (offered!.status === 'rejected') expect(offered!.reason).toEqual(refused('NOT_FOUND'));
      if (deleted!.status === 'rejected') expect(deleted!.reason).toEqual(refused('CONFLICT'));
    }
  });
});
