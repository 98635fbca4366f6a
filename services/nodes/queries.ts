/** SQL of nodes. The view is built in one statement, so that reading a node is one round trip. */
import type { Sql } from '#core/kernel/database.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { nodeOperations } from '#core/nodes/contract.ts';
import { read } from '#db/mutate.ts';
import { type After, keysetOrder } from '../verbs.ts';

export type NodeView = Output<(typeof nodeOperations)['nodes.get']>;

export interface NodeRow extends Record<string, unknown> {
  readonly id: string;
  readonly view: NodeView;
  readonly tenant_id: string;
  readonly version: number;
  readonly created_at: Instant;
  readonly attributes: Record<string, string>;
}

const COLUMNS = `n.id, n.tenant_id, n.version, n.created_at,
  jsonb_strip_nulls(jsonb_build_object('name', n.name, 'pool', n.pool_id, 'site', n.site_id, 'state', n.state)) as attributes,
  jsonb_strip_nulls(jsonb_build_object(
    'id', n.id, 'tenantId', n.tenant_id, 'siteId', n.site_id, 'poolId', n.pool_id, 'name', n.name, 'role', n.role,
    'provisionState', n.state, 'maintenance', n.maintenance, 'cordoned', n.cordoned, 'cordonReason', n.cordon_reason,
    'connectivity', n.connectivity, 'connectivityAt', instant(n.connectivity_at), 'schedulable', n.schedulable,
    'reasons', to_jsonb(n.unschedulable_reasons), 'hardware', n.hardware, 'hardwareKeyTrusted', n.hardware_key_trusted,
    'labels', n.labels, 'epoch', n.epoch, 'specGeneration', coalesce(s.generation, 0),
    'observedGeneration', n.observed_generation, 'bcdVersion', n.bcd_version, 'version', n.version,
    'joinedAt', instant(n.joined_at), 'createdAt', instant(n.created_at),
    'conditions', coalesce((
      select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('type', c.type, 'subject', nullif(c.subject, ''), 'effect', c.effect,
        'reason', c.reason, 'message', c.message, 'since', instant(c.since))) order by c.type, c.subject)
      from node_conditions c where c.node_id = n.id), '[]'))) as view`;

const FROM = 'from nodes n left join node_specs s on s.node_id = n.id';

export async function byId(db: Sql, id: string): Promise<NodeRow | undefined> {
  const [row] = await read<NodeRow>(db, `select ${COLUMNS} ${FROM} where n.id = $1`, [id]);
  return row;
}

export interface NodeFilter {
  readonly poolId?: string | undefined;
  readonly class?: string | undefined;
  readonly schedulable?: 'true' | 'false' | undefined;
}

export function list(
  db: Sql,
  tenantId: string,
  f: NodeFilter,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<NodeRow[]> {
  const { cmp, dir } = keysetOrder(order);
  return read<NodeRow>(
    db,
    `select ${COLUMNS} ${FROM}
     where n.tenant_id = $1 and ($2::text is null or n.pool_id = $2)
       and ($3::text is null or exists (select 1 from node_capacity c where c.node_id = n.id and c.class = $3))
       and ($4::boolean is null or n.schedulable = $4)
       and ($5::timestamptz is null or (n.created_at, n.id) ${cmp} ($5, $6))
     order by n.created_at ${dir}, n.id ${dir} limit $7`,
    [
      tenantId,
      f.poolId ?? null,
      f.class ?? null,
      f.schedulable === undefined ? null : f.schedulable === 'true',
      after?.at ?? null,
      after?.id ?? null,
      limit,
    ],
  );
}

/** Locks in the one order: the node's capacity rows, then the node. */
export async function lock(tx: Sql, id: string): Promise<{ version: number; cordoned: boolean } | undefined> {
  await tx.query('select node_lock(array[$1::text])', [id]);
  const [row] = await tx.query<{ version: number; cordoned: boolean }>(
    'select version, cordoned from nodes where id = $1 for no key update',
    [id],
  );
  return row;
}

export async function setCordon(tx: Sql, id: string, cordoned: boolean, reason: string | undefined): Promise<void> {
  await tx.query('update nodes set cordoned = $2, cordon_reason = $3, version = version + 1 where id = $1', [
    id,
    cordoned,
    reason ?? null,
  ]);
  await tx.query('select node_refresh($1)', [id]);
}
