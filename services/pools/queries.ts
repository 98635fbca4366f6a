/** SQL of pools. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import { type After, keysetOrder } from '../verbs.ts';

export interface PoolRow extends Record<string, unknown> {
  readonly id: string;
  readonly site_id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly class: 'metal-host' | 'metal-dedicated' | 'vps-host' | 'provider';
  readonly gpu_model: string | null;
  readonly sharing: 'exclusive' | 'mig' | 'time-slice' | 'mps';
  readonly placer: 'inline' | 'pool-lease';
  readonly spot_notice_seconds: number;
  readonly labels: Record<string, string>;
  readonly version: number;
  readonly created_at: Instant;
  readonly updated_at: Instant;
  readonly region: string | null;
}

const REGION = '(select s.iam_region from sites s where s.id = p.site_id) as region';

/** A pool of the tenant, or one offered to it. */
export async function visible(db: Sql, id: string, tenantId: string): Promise<PoolRow | undefined> {
  const [row] = await read<PoolRow>(db, `select p.*, ${REGION} from pool_visible($1, $2) p`, [id, tenantId]);
  return row;
}

export async function lock(tx: Sql, id: string): Promise<PoolRow | undefined> {
  const [row] = await tx.query<PoolRow>(`select p.*, ${REGION} from pools p where p.id = $1 for update of p`, [id]);
  return row;
}

export async function siteOf(
  db: Sql,
  siteId: string,
  tenantId: string,
): Promise<{ id: string; region: string | null } | undefined> {
  const [row] = await read<{ id: string; region: string | null }>(
    db,
    'select id, iam_region as region from sites where id = $1 and tenant_id = $2',
    [siteId, tenantId],
  );
  return row;
}

export function list(
  db: Sql,
  tenantId: string,
  siteId: string | undefined,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<PoolRow[]> {
  const { cmp, dir } = keysetOrder(order);
  return read<PoolRow>(
    db,
    `select p.*, ${REGION} from pools p
     where (p.tenant_id = $1 or exists (select 1 from pool_offers o where o.pool_id = p.id and o.tenant_id = $1))
       and ($2::text is null or p.site_id = $2)
       and ($3::timestamptz is null or (p.created_at, p.id) ${cmp} ($3, $4))
     order by p.created_at ${dir}, p.id ${dir} limit $5`,
    [tenantId, siteId ?? null, after?.at ?? null, after?.id ?? null, limit],
  );
}

export async function insert(
  tx: Sql,
  p: {
    id: string;
    tenantId: string;
    siteId: string;
    name: string;
    class: string;
    gpuModel?: string | undefined;
    sharing: string;
    placer: string;
    spotNoticeSeconds: number;
    labels: object;
  },
): Promise<PoolRow> {
  const [row] = await tx.query<PoolRow>(
    `with p as (
       insert into pools (id, site_id, tenant_id, name, class, gpu_model, sharing, placer, labels, spot_notice_seconds)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning *)
     select p.*, ${REGION} from p`,
    [
      p.id,
      p.siteId,
      p.tenantId,
      p.name,
      p.class,
      p.gpuModel ?? null,
      p.sharing,
      p.placer,
      JSON.stringify(p.labels),
      p.spotNoticeSeconds,
    ],
  );
  return row!;
}

export async function update(tx: Sql, p: PoolRow): Promise<PoolRow> {
  const [row] = await tx.query<PoolRow>(
    `with p as (
       update pools set name = $2, labels = $3, spot_notice_seconds = $4, version = version + 1, updated_at = compute_now() where id = $1 returning *)
     select p.*, ${REGION} from p`,
    [p.id, p.name, JSON.stringify(p.labels), p.spot_notice_seconds],
  );
  return row!;
}

/** What a pool still holds, in words; empty when it may go. */
export async function usedBy(tx: Sql, id: string): Promise<string[]> {
  const [n] = await tx.query<Record<'nodes' | 'offers' | 'tokens' | 'reservations', number>>(
    `select (select count(*) from nodes where pool_id = $1) as nodes,
       (select count(*) from pool_offers where pool_id = $1) as offers,
       (select count(*) from join_tokens where pool_id = $1 and revoked_at is null and expires_at > compute_now()) as tokens,
       (select count(*) from allocations where pool_id = $1 and released_at is null) as reservations`,
    [id],
  );
  const words = {
    nodes: 'node(s)',
    offers: 'offer(s)',
    tokens: 'valid join token(s)',
    reservations: 'live allocation(s)',
  };
  return Object.entries(words).flatMap(([k, word]) =>
    n![k as keyof typeof words] > 0 ? [`${n![k as keyof typeof words]} ${word}`] : [],
  );
}

export async function remove(tx: Sql, id: string): Promise<void> {
  await tx.query('delete from quotas where pool_id = $1', [id]);
  await tx.query('delete from join_admissions a using join_tokens t where t.id = a.token_id and t.pool_id = $1', [id]);
  await tx.query('delete from join_tokens where pool_id = $1', [id]);
  await tx.query('delete from pools where id = $1', [id]);
}
