/** SQL of sites. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import { type After, keysetOrder } from '../verbs.ts';

export interface SiteRow extends Record<string, unknown> {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly kind: 'shared' | 'dedicated' | 'custom';
  readonly iam_region: string | null;
  readonly labels: Record<string, string>;
  readonly version: number;
  readonly created_at: Instant;
  readonly updated_at: Instant;
}

export async function byId(db: Sql, id: string, lock = false): Promise<SiteRow | undefined> {
  const [row] = await read<SiteRow>(db, `select * from sites where id = $1 ${lock ? 'for update' : ''}`, [id]);
  return row;
}

export function list(
  db: Sql,
  tenantId: string,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<SiteRow[]> {
  const { cmp, dir } = keysetOrder(order);
  return read<SiteRow>(
    db,
    `select * from sites where tenant_id = $1 and ($2::timestamptz is null or (created_at, id) ${cmp} ($2, $3))
     order by created_at ${dir}, id ${dir} limit $4`,
    [tenantId, after?.at ?? null, after?.id ?? null, limit],
  );
}

export async function insert(
  tx: Sql,
  s: { id: string; tenantId: string; name: string; kind: string; iamRegion?: string | undefined; labels: object },
): Promise<SiteRow> {
  const [row] = await tx.query<SiteRow>(
    'insert into sites (id, tenant_id, name, kind, iam_region, labels) values ($1, $2, $3, $4, $5, $6) returning *',
    [s.id, s.tenantId, s.name, s.kind, s.iamRegion ?? null, JSON.stringify(s.labels)],
  );
  return row!;
}

export async function update(tx: Sql, s: SiteRow): Promise<SiteRow> {
  const [row] = await tx.query<SiteRow>(
    `update sites set name = $2, iam_region = $3, labels = $4, version = version + 1, updated_at = compute_now()
     where id = $1 returning *`,
    [s.id, s.name, s.iam_region, JSON.stringify(s.labels)],
  );
  return row!;
}

/** Tells what policies read of everything in the site, and of what is held there, that its region is another one. */
export async function spreadRegion(tx: Sql, id: string, region: string | null): Promise<void> {
  await tx.query(
    `update authz_resources z set attributes = jsonb_strip_nulls(z.attributes || jsonb_build_object('region', $2::text))
     from (
       select id, 'compute-pool' as type from pools where site_id = $1
       union all select id, 'compute-node' from nodes where site_id = $1
       union all select d.id, 'compute-device' from devices d join nodes n on n.id = d.node_id where n.site_id = $1
       union all select r.id, 'compute-reservation' from reservations r join pools p on p.id = r.pool_id
         where p.site_id = $1 and r.state in ('draft', 'scheduled', 'booked', 'active', 'releasing')) x
     where z.id = x.id and z.type = x.type`,
    [id, region],
  );
}

/** What a site still holds, in words; empty when it may go. */
export async function usedBy(tx: Sql, id: string): Promise<string[]> {
  const [row] = await tx.query<{ pools: number; nodes: number }>(
    `select (select count(*) from pools where site_id = $1) as pools, (select count(*) from nodes where site_id = $1) as nodes`,
    [id],
  );
  return [...(row!.pools > 0 ? [`${row!.pools} pool(s)`] : []), ...(row!.nodes > 0 ? [`${row!.nodes} node(s)`] : [])];
}

export async function remove(tx: Sql, id: string): Promise<void> {
  await tx.query('delete from sites where id = $1', [id]);
}
