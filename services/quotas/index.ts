/** Quotas: the only door to this folder. */
import type { Sql } from '#core/kernel/database.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { quotaOperations } from '#core/quotas/contract.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { notFound, performOnce } from '../verbs.ts';

type View = Output<(typeof quotaOperations)['quotas.set']>;

interface QuotaRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly pool_id: string;
  readonly resource: View['resource'];
  readonly limit_count: number | null;
  readonly used: number;
  readonly source: View['source'];
}

const view = (q: QuotaRow): View => ({
  tenantId: q.tenant_id,
  poolId: q.pool_id,
  resource: q.resource,
  limit: q.limit_count,
  used: q.used,
  source: q.source,
});

/** The pool, if this tenant owns it or it is offered to it; `owner` says whose it is. */
async function poolOf(db: Sql, poolId: string, tenantId: string): Promise<{ owner: string }> {
  const [row] = await read<{ owner: string }>(db, 'select tenant_id as owner from pool_visible($1, $2)', [
    poolId,
    tenantId,
  ]);
  if (row === undefined) throw notFound('pool', poolId);
  return row;
}

export const handlers: Handlers<typeof quotaOperations> = {
  async 'quotas.get'(ctx, input) {
    const { owner } = await poolOf(ctx.db, input.poolId, ctx.caller.tenantId);
    const tenantId = input.tenantId ?? ctx.caller.tenantId;
    // The owner of a pool sees what each tenant holds there; a tenant sees its own.
    if (tenantId !== ctx.caller.tenantId && owner !== ctx.caller.tenantId) throw notFound('tenant', tenantId);
    await ctx.require('compute:quotas:get', {
      type: 'compute-quota',
      id: `${input.poolId}.${tenantId}`,
      tenantId: ctx.caller.tenantId,
      attributes: { pool: input.poolId, tenant: tenantId },
    });
    const rows = await read<QuotaRow>(
      ctx.db,
      'select tenant_id, pool_id, resource, limit_count, used, source from quotas where tenant_id = $1 and pool_id = $2 order by resource',
      [tenantId, input.poolId],
    );
    return { items: rows.map(view) };
  },
  async 'quotas.set'(ctx, input) {
    const { poolId, tenantId, resource, limit } = input.body;
    const { owner } = await poolOf(ctx.db, poolId, ctx.caller.tenantId);
    if (owner !== ctx.caller.tenantId) throw notFound('pool', poolId);
    const decision = await ctx.require('compute:quotas:set', {
      type: 'compute-quota',
      id: `${poolId}.${tenantId}`,
      tenantId: owner,
      attributes: { pool: poolId, tenant: tenantId, resource },
    });
    return performOnce(ctx, 'quotas.set', decision, input, async (tx) => {
      const [row] = await tx.query<QuotaRow>(
        `insert into quotas as q (tenant_id, pool_id, resource, limit_count, source)
         select $1, $2, $3,
           case when $4::bigint is not null then $4 when $1 = $5 then null
             else coalesce((select (o.quota ->> $3)::bigint from pool_offers o where o.pool_id = $2 and o.tenant_id = $1), 0) end,
           case when $4::bigint is not null then 'set' when $1 = $5 then 'owner' else 'offer' end
         on conflict (tenant_id, pool_id, resource) do update set limit_count = excluded.limit_count,
           source = excluded.source, updated_at = compute_now()
         returning tenant_id, pool_id, resource, limit_count, used, source`,
        [tenantId, poolId, resource, limit, owner],
      );
      const quota = view(row!);
      for (const hears of new Set([owner, tenantId])) {
        tx.emit({
          type: 'quota.set',
          tenantId: hears,
          kind: 'quota',
          id: `${poolId}.${tenantId}`,
          data: quota as never,
        });
      }
      tx.audit({
        tenantId: owner,
        action: 'compute:quotas:set',
        type: 'compute-quota',
        id: `${poolId}.${tenantId}`,
        data: { resource, limit },
      });
      return quota;
    });
  },
};
