/** SQL of offers, and of the quota rows that follow from them. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import { type After, keysetOrder } from '../verbs.ts';

export interface OfferRow extends Record<string, unknown> {
  readonly id: string;
  readonly pool_id: string;
  /** To whom. */
  readonly tenant_id: string;
  /** Whose pool. */
  readonly owner_id: string;
  readonly quota: Record<string, number>;
  readonly priority: number;
  readonly version: number;
  readonly created_at: Instant;
  readonly updated_at: Instant;
}

const OWNER = '(select p.tenant_id from pools p where p.id = o.pool_id) as owner_id';

export async function byId(db: Sql, id: string, lock = false): Promise<OfferRow | undefined> {
  const [row] = await read<OfferRow>(
    db,
    `select o.*, ${OWNER} from pool_offers o where o.id = $1 ${lock ? 'for update of o' : ''}`,
    [id],
  );
  return row;
}

/** The share lock keeps the pool from being deleted under the offer. */
export async function ownsPool(tx: Sql, poolId: string, tenantId: string): Promise<boolean> {
  return (
    (await tx.query('select 1 from pools where id = $1 and tenant_id = $2 for share', [poolId, tenantId])).length > 0
  );
}

export function list(
  db: Sql,
  tenantId: string,
  poolId: string | undefined,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<OfferRow[]> {
  const { cmp, dir } = keysetOrder(order);
  return read<OfferRow>(
    db,
    `select o.*, p.tenant_id as owner_id from pool_offers o join pools p on p.id = o.pool_id
     where (o.tenant_id = $1 or p.tenant_id = $1) and ($2::text is null or o.pool_id = $2)
       and ($3::timestamptz is null or (o.created_at, o.id) ${cmp} ($3, $4))
     order by o.created_at ${dir}, o.id ${dir} limit $5`,
    [tenantId, poolId ?? null, after?.at ?? null, after?.id ?? null, limit],
  );
}

export async function insert(
  tx: Sql,
  o: { id: string; ownerId: string; poolId: string; tenantId: string; quota: object; priority: number },
): Promise<OfferRow> {
  const [row] = await tx.query<OfferRow>(
    'insert into pool_offers (id, pool_id, tenant_id, quota, priority) values ($1, $2, $3, $4, $5) returning *',
    [o.id, o.poolId, o.tenantId, JSON.stringify(o.quota), o.priority],
  );
  return { ...row!, owner_id: o.ownerId };
}

export async function update(tx: Sql, o: OfferRow): Promise<OfferRow> {
  const [row] = await tx.query<OfferRow>(
    `update pool_offers set quota = $2, priority = $3, version = version + 1, updated_at = compute_now() where id = $1 returning *`,
    [o.id, JSON.stringify(o.quota), o.priority],
  );
  return { ...row!, owner_id: o.owner_id };
}

export async function remove(tx: Sql, id: string): Promise<void> {
  await tx.query('delete from pool_offers where id = $1', [id]);
}

/**
 * Brings the quota rows in line with what is offered: a resource that is no longer named is limited to zero, which
 * refuses new requests and takes nothing back. An override by quotas.set stays above it.
 */
export async function grant(
  tx: Sql,
  poolId: string,
  tenantId: string,
  quota: Readonly<Record<string, number>>,
): Promise<void> {
  await tx.query(
    `insert into quotas as q (tenant_id, pool_id, resource, limit_count, source)
     select $1, $2, key, value::bigint, 'offer' from jsonb_each_text($3::jsonb) order by key
     on conflict (tenant_id, pool_id, resource) do update set limit_count = excluded.limit_count, source = 'offer',
       updated_at = compute_now()
     where q.source <> 'set'`,
    [tenantId, poolId, JSON.stringify(quota)],
  );
  await tx.query(
    `update quotas set limit_count = 0, updated_at = compute_now()
     where tenant_id = $1 and pool_id = $2 and source = 'offer' and not ($3::jsonb ? resource)`,
    [tenantId, poolId, JSON.stringify(quota)],
  );
}
