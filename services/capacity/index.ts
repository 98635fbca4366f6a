/** Capacity: the only door to this folder. Read from the maintained summaries in one statement. */
import type { capacityOperations } from '#core/capacity/contract.ts';
import type { Output } from '#core/kernel/operations.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { notFound } from '../verbs.ts';

type View = Output<(typeof capacityOperations)['capacity.get']>;

const REASONS_MAX = 16;

export const handlers: Handlers<typeof capacityOperations> = {
  async 'capacity.get'(ctx, input) {
    const [row] = await read<{ view: View; class: string; site: string }>(
      ctx.db,
      `select p.class, p.site_id as site, jsonb_build_object('poolId', p.id, 'at', instant(compute_now()),
         'nodes', (select jsonb_build_object('total', count(*), 'schedulable', count(*) filter (where schedulable))
           from nodes n where n.pool_id = p.id and n.state <> 'retired'),
         'resources', coalesce((select jsonb_agg(r order by r ->> 'resource') from (
           select jsonb_build_object('resource', c.class, 'total', sum(c.total),
             'allocatable', coalesce(sum(c.allocatable) filter (where c.schedulable), 0), 'allocated', sum(c.allocated),
             'reserved', coalesce(sum(c.claimed) filter (where c.schedulable), 0),
             'available', coalesce(sum(c.free + c.claimed) filter (where c.schedulable), 0),
             'largestFree', coalesce(max(c.free + c.claimed) filter (where c.schedulable), 0)) as r
           from node_capacity c where c.pool_id = p.id group by c.class having sum(c.total) > 0) x), '[]'),
         'reasons', coalesce((select jsonb_agg(jsonb_build_object('reason', reason, 'nodes', n, 'example', example) order by n desc, reason) from (
           select why as reason, count(*) as n, min(n.name) as example from nodes n, unnest(n.unschedulable_reasons) why
           where n.pool_id = p.id and n.state <> 'retired' group by why order by count(*) desc, why limit $3) y), '[]')) as view
       from pool_visible($1, $2) p`,
      [input.poolId, ctx.caller.tenantId, REASONS_MAX],
    );
    if (row === undefined) throw notFound('pool', input.poolId);
    await ctx.require('compute:capacity:get', {
      type: 'compute-capacity',
      id: input.poolId,
      tenantId: ctx.caller.tenantId,
      parentType: 'compute-pool',
      parentId: input.poolId,
      attributes: { pool: input.poolId, site: row.site },
    });
    return row.view;
  },
};
