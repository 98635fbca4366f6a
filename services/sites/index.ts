/** Sites: the only door to this folder. */
import { problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { siteOperations } from '#core/sites/contract.ts';
import type { Tx } from '#db/mutate.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { keysetPage, notFound, performOnce, requireCollection, requireVersion } from '../verbs.ts';
import * as sql from './queries.ts';

type View = Output<(typeof siteOperations)['sites.get']>;

const view = (s: sql.SiteRow): View => ({
  id: s.id,
  tenantId: s.tenant_id,
  name: s.name,
  kind: s.kind,
  ...(s.iam_region === null ? {} : { iamRegion: s.iam_region }),
  labels: s.labels,
  version: s.version,
  createdAt: s.created_at,
  updatedAt: s.updated_at,
});

const attributes = (s: sql.SiteRow) => ({ name: s.name, ...(s.iam_region === null ? {} : { region: s.iam_region }) });

function announce(tx: Tx, s: sql.SiteRow, verb: 'created' | 'updated' | 'deleted', action: string): void {
  tx.emit({ type: `site.${verb}`, tenantId: s.tenant_id, kind: 'site', id: s.id, data: { id: s.id, name: s.name } });
  tx.audit({ tenantId: s.tenant_id, action: `compute:sites:${action}`, type: 'compute-site', id: s.id });
  if (verb === 'deleted') tx.unproject('compute-site', s.id);
  else tx.project({ type: 'compute-site', id: s.id, tenantId: s.tenant_id, attributes: attributes(s) });
}

async function authorized(ctx: RequestContext, id: string, verb: string) {
  const site = await sql.byId(ctx.db, id);
  if (site === undefined) throw notFound('site', id);
  const decision = await ctx.require(`compute:sites:${verb}`, {
    type: 'compute-site',
    id,
    tenantId: site.tenant_id,
    attributes: attributes(site),
  });
  return { site, decision };
}

async function locked(ctx: RequestContext, tx: Tx, id: string): Promise<sql.SiteRow> {
  const site = await sql.byId(tx, id, true);
  if (site === undefined) throw notFound('site', id);
  requireVersion(ctx, site.version);
  return site;
}

export const handlers: Handlers<typeof siteOperations> = {
  async 'sites.create'(ctx, input) {
    const decision = await requireCollection(ctx, 'compute:sites:create', 'compute-site');
    return performOnce(ctx, 'sites.create', decision, input, async (tx) => {
      const site = await sql.insert(tx, { id: newId('site'), tenantId: ctx.caller.tenantId, ...input.body });
      announce(tx, site, 'created', 'create');
      return view(site);
    });
  },
  async 'sites.get'(ctx, input) {
    return view((await authorized(ctx, input.id, 'get')).site);
  },
  async 'sites.list'(ctx, input) {
    await requireCollection(ctx, 'compute:sites:list', 'compute-site');
    const fetch = (after: Parameters<typeof sql.list>[3], limit: number) =>
      sql.list(ctx.db, ctx.caller.tenantId, input.order, after, limit);
    return keysetPage(ctx, 'sites.list', input, fetch, view);
  },
  async 'sites.update'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'update');
    return performOnce(ctx, 'sites.update', decision, input, async (tx) => {
      const site = await locked(ctx, tx, input.id);
      const { name, iamRegion, labels } = input.body;
      const changed = await sql.update(tx, {
        ...site,
        name: name ?? site.name,
        iam_region: iamRegion === undefined ? site.iam_region : iamRegion,
        labels: labels ?? site.labels,
      });
      if (changed.iam_region !== site.iam_region) await sql.spreadRegion(tx, site.id, changed.iam_region);
      announce(tx, changed, 'updated', 'update');
      return view(changed);
    });
  },
  async 'sites.delete'(ctx, input) {
    const { decision } = await authorized(ctx, input.id, 'delete');
    return performOnce(ctx, 'sites.delete', decision, input, async (tx) => {
      const site = await locked(ctx, tx, input.id);
      const used = await sql.usedBy(tx, site.id);
      if (used.length > 0) throw problem('CONFLICT', `site ${site.name} still has ${used.join(' and ')}`);
      await sql.remove(tx, site.id);
      announce(tx, site, 'deleted', 'delete');
      return {};
    });
  },
};
