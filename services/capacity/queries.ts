/** SQL of capacity: from the maintained summaries, and over a time from the bookings. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';

const REASONS_MAX = 16;

export async function pool(
  db: Sql,
  poolId: string,
  tenantId: string,
): Promise<{ site: string; now: Instant } | undefined> {
  const [row] = await read<{ site: string; now: Instant }>(
    db,
    'select site_id as site, instant(compute_now()) as now from pool_visible($1, $2)',
    [poolId, tenantId],
  );
  return row;
}

export async function capacity<V>(
  db: Sql,
  poolId: string,
  tenantId: string,
): Promise<{ site: string; view: V } | undefined> {
  const [row] = await read<{ site: string; view: V }>(
    db,
    `select p.site_id as site, jsonb_build_object('poolId', p.id, 'at', instant(compute_now()),
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
    [poolId, tenantId, REASONS_MAX],
  );
  return row;
}

/**
 * How many allocatable devices of each class are held or booked at some time in each of `steps` steps. A device counts
 * once a step, however many bookings of it touch: its steps are merged before they are counted.
 */
export async function series(
  db: Sql,
  poolId: string,
  w: { readonly from: Instant; readonly to: Instant; readonly stepSeconds: number; readonly steps: number },
): Promise<{ resource: string; allocatable: number; booked: number[] }[]> {
  return read<{ resource: string; allocatable: number; booked: number[] }>(
    db,
    `with fit as (
       select d.no, d.class from devices d join nodes n on n.id = d.node_id
       where d.pool_id = $1 and n.schedulable and d.bookable and d.present and d.health = 'healthy'),
     steps as (
       select f.class, f.no, range_agg(int4range(
         greatest(0, floor(extract(epoch from coalesce(lower(b.during), $2::timestamptz) - $2::timestamptz) / $4::int))::int,
         least($5::int, ceil(extract(epoch from coalesce(upper(b.during), $3::timestamptz) - $2::timestamptz) / $4::int))::int)) as taken
       from fit f join device_bookings b on b.device_no = f.no
       where b.released_at is null and meets(b.during, tstzrange($2, $3, '[)')) group by f.class, f.no),
     edges as (
       select class, lower(r) as i, 1 as d from steps, unnest(taken) r
       union all select class, upper(r), -1 from steps, unnest(taken) r
       union all select c.class, g.i, 0 from (select distinct class from fit) c, generate_series(0, $5::int - 1) g (i)),
     counted as (
       select class, i, sum(sum(d)) over (partition by class order by i) as n from edges group by class, i)
     select c.class as resource, (select count(*) from fit f where f.class = c.class) as allocatable,
       array_agg(c.n::int order by c.i) as booked
     from counted c where c.i < $5::int group by c.class order by c.class`,
    [poolId, w.from, w.to, w.stepSeconds, w.steps],
  );
}
