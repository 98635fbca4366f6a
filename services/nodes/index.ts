/** Nodes: the only door to this folder. */
import type { nodeOperations } from '#core/nodes/contract.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { type After, keysetPage, notFound, performOnce, requireCollection, requireVersion } from '../verbs.ts';
import * as sql from './queries.ts';

async function authorized(ctx: RequestContext, id: string, verb: string) {
  const node = await sql.byId(ctx.db, id);
  if (node === undefined) throw notFound('node', id);
  const decision = await ctx.require(`compute:nodes:${verb}`, {
    type: 'compute-node',
    id,
    tenantId: node.tenant_id,
    parentType: 'compute-pool',
    parentId: node.view.poolId,
    attributes: node.attributes,
  });
  return { node, decision };
}

/** Cordon and uncordon: the same change in two directions. What is so already stays as it is. */
async function setCordon(
  ctx: RequestContext,
  input: { id: string },
  cordoned: boolean,
  reason?: string,
): Promise<sql.NodeView> {
  const verb = cordoned ? 'cordon' : 'uncordon';
  const { node, decision } = await authorized(ctx, input.id, verb);
  return performOnce(ctx, `nodes.${verb}`, decision, input, async (tx) => {
    const now = await sql.lock(tx, input.id);
    if (now === undefined) throw notFound('node', input.id);
    requireVersion(ctx, now.version);
    if (now.cordoned !== cordoned || reason !== undefined) {
      await sql.setCordon(tx, input.id, cordoned, reason);
      tx.emit({
        type: `node.${verb}ed`,
        tenantId: node.tenant_id,
        kind: 'node',
        id: input.id,
        data: { id: input.id, name: node.view.name, ...(reason === undefined ? {} : { reason }) },
      });
      tx.audit({ tenantId: node.tenant_id, action: `compute:nodes:${verb}`, type: 'compute-node', id: input.id });
    }
    return (await sql.byId(tx, input.id))!.view;
  });
}

export const handlers: Handlers<typeof nodeOperations> = {
  async 'nodes.list'(ctx, input) {
    await requireCollection(ctx, 'compute:nodes:list', 'compute-node');
    const fetch = (after: After | undefined, limit: number) =>
      sql.list(ctx.db, ctx.caller.tenantId, input, input.order, after, limit);
    return keysetPage(ctx, 'nodes.list', input, fetch, (row) => row.view);
  },
  async 'nodes.get'(ctx, input) {
    return (await authorized(ctx, input.id, 'get')).node.view;
  },
  'nodes.cordon': (ctx, input) => setCordon(ctx, input, true, input.body.reason),
  'nodes.uncordon': (ctx, input) => setCordon(ctx, input, false),
};
