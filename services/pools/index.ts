/** Pools: the only door to this folder. */
import { problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { poolOperations } from '#core/pools/contract.ts';
import type { Tx } from '#db/mutate.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { keysetPage, notFound, performOnce, requireCollection, requireVersion } from '../verbs.ts';
import * as sql from './queries.ts';

type View = Output<(typeof poolOperations)['pools.get']>;

const view = (p: sql.PoolRow): View => ({
  id: p.id,
  siteId: p.site_id,
  tenantId: p.tenant_id,
  name: p.name,
  class: p.class,
  ...(p.gpu_model === null ? {} : { gpuModel: p.gpu_model }),
  sharing: p.sharing,
  placer: p.placer,
  spotNoticeSeconds: p.spot_notice_seconds,
  labels: p.labels,
  version: p.version,
  createdAt: p.created_at,
  updatedAt: p.updated_at,
});

const attributes = (p: sql.PoolRow) => ({
  name: p.name,
  class: p.class,
  site: p.site_id,
  sharing: p.sharing,
  ...(p.gpu_model === null ? {} : { model: p.gpu_model }),
  ...(p.region === null ? {} : { region: p.region }),
});

function announce(tx: Tx, p: sql.PoolRow, verb: 'created' | 'updated' | 'deleted', action: string): void {
  tx.emit({ type: `pool.${verb}`, tenantId: p.tenant_id, kind: 'pool', id: p.id, data: { id: p.id, name: p.name } });
  tx.audit({ tenantId: p.tenant_id, action: `compute:pools:${action}`, type: 'compute-pool', id: p.id });
  if (verb === 'deleted') tx.unproject('compute-pool', p.id);
  else {
    tx.project({
      type: 'compute-pool',
      id: p.id,
      tenantId: p.tenant_id,
      parentType: 'compute-site',
      parentId: p.site_id,
      attributes: attributes(p),
    });
  }
}

/** For reading, a pool offered to the caller's tenant counts as its own; changing it is for the owner. */
async function authorized(ctx: RequestContext, id: string, verb: 'get' | 'update' | 'delete') {
  const pool = await sql.visible(ctx.db, id, ctx.caller.tenantId);
  if (pool === undefined || (verb !== 'get' && pool.tenant_id !== ctx.caller.tenantId)) throw notFound('pool', id);
  const decision = await ctx.require(`compute:pools:${verb}`, {
    type: 'compute-pool',
    id,
    tenantId: ctx.caller.tenantId,
    parentType: 'compute-site',
    parentId: pool.site_id,
    attributes: attributes(pool),
  });
  return { pool, decision };
}

async function locked(ctx: RequestContext, tx: Tx, id: string): Promise<sql.PoolRow> {
  const pool = await sql.lock(tx, id);
  if (pool === undefined) throw notFound('pool', id);
  requireVersion(ctx, pool.version);
  return pool;
}

/** Ways of sharing and placing that are declared, and not built yet, are refused by name. */
function requireBuilt(body: { sharing: string; placer: string }): void {
  const errors = [
    ...(body.sharing === 'exclusive'
      ? []
      : [{ field: 'sharing', message: 'only exclusive is supported in this version' }]),
    ...(body.placer === 'inline' ? [] : [{ field: 'placer', message: 'only inline is supported in this version' }]),
  ];
  if (errors.length > 0)
    throw problem('INVALID_REQUEST', errors.map((e) => `${e.field}: ${e.message}`).join('; '), { errors });
}

export const handlers: Handlers<typeof poolOperations> = {
  async 'pools.create'(ctx, input) {
    const decision = await requireCollection(ctx, 'compute:pools:create', 'compute-pool');
    requireBuilt(input.body);
    return performOnce(ctx, 'pools.create', decision, input, async (tx) => {
      const { tenantId } = ctx.caller;
      if ((await sql.siteOf(tx, input.body.siteId, tenantId)) === undefined) throw notFound('site', input.body.siteId);
      const pool = await sql.insert(tx, { id: newId('pool'), tenantId, ...input.body });
      announce(tx, pool, 'created', 'create');
      return view(pool);
    });
  },
  async 'pools.get'(ctx, input) {
    return view((await authorized(ctx, input.id, 'get')).pool);
  },
  async 'pools.list'(ctx, input) {
    await requireCollection(ctx, 'compute:pools:list', 'compute-pool');
    const fetch = (after: Parameters<typeof sql.list>[4], limit: number) =>
      sql.list(ctx.db, ctx.caller.tenantId, input.siteId, input.order, after, limit);
    return keysetPage(ctx, 'pools.list', input, fetch, view);
  },
  async 'pools.update'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'update');
    return performOnce(ctx, 'pools.update', decision, input, async (tx) => {
      const pool = await locked(ctx, tx, input.id);
      const changed = await sql.update(tx, {
        ...pool,
        name: input.body.name ?? pool.name,
        labels: input.body.labels ?? pool.labels,
        spot_notice_seconds: input.body.spotNoticeSeconds ?? pool.spot_notice_seconds,
      });
      announce(tx, changed, 'updated', 'update');
      return view(changed);
    });
  },
  async 'pools.delete'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'delete');
    return performOnce(ctx, 'pools.delete', decision, input, async (tx) => {
      const pool = await locked(ctx, tx, input.id);
      const used = await sql.usedBy(tx, pool.id);
      if (used.length > 0) throw problem('CONFLICT', `pool ${pool.name} still has ${used.join(', ')}`);
      await sql.remove(tx, pool.id);
      announce(tx, pool, 'deleted', 'delete');
      return {};
    });
  },
};
