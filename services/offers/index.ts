/** Offers: the only door to this folder. An offer and the quota rows that follow from it change in one commit. */
import { problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { offerOperations } from '#core/offers/contract.ts';
import type { Tx } from '#db/mutate.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { keysetPage, notFound, performOnce, requireCollection, requireVersion } from '../verbs.ts';
import * as sql from './queries.ts';

type View = Output<(typeof offerOperations)['offers.get']>;

const view = (o: sql.OfferRow): View => ({
  id: o.id,
  poolId: o.pool_id,
  tenantId: o.tenant_id,
  quota: o.quota,
  priority: o.priority,
  version: o.version,
  createdAt: o.created_at,
  updatedAt: o.updated_at,
});

const attributes = (o: sql.OfferRow) => ({ pool: o.pool_id, tenant: o.tenant_id, priority: o.priority });

/** Both sides hear of it: the owner who offers, and the tenant it is offered to. */
function announce(tx: Tx, o: sql.OfferRow, verb: 'created' | 'updated' | 'deleted', action: string): void {
  for (const tenantId of new Set([o.owner_id, o.tenant_id])) {
    tx.emit({
      type: `offer.${verb}`,
      tenantId,
      kind: 'offer',
      id: o.id,
      data: { id: o.id, poolId: o.pool_id, tenantId: o.tenant_id, quota: o.quota },
    });
  }
  tx.audit({ tenantId: o.owner_id, action: `compute:offers:${action}`, type: 'compute-offer', id: o.id });
  if (verb === 'deleted') tx.unproject('compute-offer', o.id);
  else {
    tx.project({
      type: 'compute-offer',
      id: o.id,
      tenantId: o.owner_id,
      parentType: 'compute-pool',
      parentId: o.pool_id,
      attributes: attributes(o),
    });
  }
}

/** The tenant it is made to may read it; changing it is for the owner of the pool. */
async function authorized(ctx: RequestContext, id: string, verb: 'get' | 'update' | 'delete') {
  const offer = await sql.byId(ctx.db, id);
  const mine =
    offer !== undefined &&
    (offer.owner_id === ctx.caller.tenantId || (verb === 'get' && offer.tenant_id === ctx.caller.tenantId));
  if (!mine) throw notFound('offer', id);
  const decision = await ctx.require(`compute:offers:${verb}`, {
    type: 'compute-offer',
    id,
    tenantId: ctx.caller.tenantId,
    parentType: 'compute-pool',
    parentId: offer.pool_id,
    attributes: attributes(offer),
  });
  return { offer, decision };
}

async function locked(ctx: RequestContext, tx: Tx, id: string): Promise<sql.OfferRow> {
  const offer = await sql.byId(tx, id, true);
  if (offer === undefined) throw notFound('offer', id);
  requireVersion(ctx, offer.version);
  return offer;
}

export const handlers: Handlers<typeof offerOperations> = {
  async 'offers.create'(ctx, input) {
    const decision = await requireCollection(ctx, 'compute:offers:create', 'compute-offer');
    return performOnce(ctx, 'offers.create', decision, input, async (tx) => {
      if (!(await sql.ownsPool(tx, input.body.poolId, ctx.caller.tenantId))) throw notFound('pool', input.body.poolId);
      // It would put a cap on the owner, and taking it back would leave the owner with zero.
      if (input.body.tenantId === ctx.caller.tenantId) {
        throw problem('INVALID_REQUEST', 'a pool needs no offer to its own tenant; quotas.set caps it', {
          errors: [{ field: 'tenantId', message: 'owns the pool already; use quotas.set to cap it' }],
        });
      }
      const offer = await sql.insert(tx, { id: newId('offer'), ownerId: ctx.caller.tenantId, ...input.body });
      await sql.grant(tx, offer.pool_id, offer.tenant_id, offer.quota);
      announce(tx, offer, 'created', 'create');
      return view(offer);
    });
  },
  async 'offers.get'(ctx, input) {
    return view((await authorized(ctx, input.id, 'get')).offer);
  },
  async 'offers.list'(ctx, input) {
    await requireCollection(ctx, 'compute:offers:list', 'compute-offer');
    const fetch = (after: Parameters<typeof sql.list>[4], limit: number) =>
      sql.list(ctx.db, ctx.caller.tenantId, input.poolId, input.order, after, limit);
    return keysetPage(ctx, 'offers.list', input, fetch, view);
  },
  async 'offers.update'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'update');
    return performOnce(ctx, 'offers.update', decision, input, async (tx) => {
      const offer = await locked(ctx, tx, input.id);
      const changed = await sql.update(tx, {
        ...offer,
        quota: input.body.quota ?? offer.quota,
        priority: input.body.priority ?? offer.priority,
      });
      await sql.grant(tx, changed.pool_id, changed.tenant_id, changed.quota);
      announce(tx, changed, 'updated', 'update');
      return view(changed);
    });
  },
  async 'offers.delete'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'delete');
    return performOnce(ctx, 'offers.delete', decision, input, async (tx) => {
      const offer = await locked(ctx, tx, input.id);
      await sql.remove(tx, offer.id);
      await sql.grant(tx, offer.pool_id, offer.tenant_id, {});
      announce(tx, offer, 'deleted', 'delete');
      return {};
    });
  },
};
