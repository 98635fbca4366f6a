/** SQL of sessions. Locks go in the one order: capacity rows by node and class, then the node. */
import type { Json } from '#core/kernel/canonical-json.ts';
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';

/** Everybody who changes what a node can offer takes these first. */
export async function lockCapacity(tx: Sql, nodeIds: readonly string[]): Promise<void> {
  await tx.query('select node_lock($1::text[])', [nodeIds]);
}

export async function refresh(tx: Sql, nodeIds: readonly string[]): Promise<void> {
  await tx.query('select node_refresh(id) from unnest($1::text[]) u (id) order by id', [nodeIds]);
}

export interface CertificateRow extends Record<string, unknown> {
  readonly node_id: string;
  readonly revoked: boolean;
  readonly state: string;
}

export async function certificate(tx: Sql, serial: string): Promise<CertificateRow | undefined> {
  const [row] = await tx.query<CertificateRow>(
    `select c.node_id, c.revoked_at is not null as revoked, n.state
     from node_certificates c join nodes n on n.id = c.node_id where c.serial = $1`,
    [serial],
  );
  return row;
}

export interface OpenedRow extends Record<string, unknown> {
  readonly epoch: number;
  readonly tenant_id: string;
  readonly name: string;
  readonly observed_generation: number;
  readonly before: string;
  readonly journal_before: string | null;
  readonly journal_events: number;
}

/** The epoch rises, so that every write under an earlier session is refused from here on. */
export async function open(
  tx: Sql,
  s: { nodeId: string; gatewayId: string; journalId: string; bootId: string; bcdVersion: string },
): Promise<OpenedRow | undefined> {
  const [row] = await tx.query<OpenedRow>(
    `update nodes set epoch = epoch + 1, gateway_id = $2, journal_id = $3, boot_id = $4, bcd_version = $5,
       journal_events = case when journal_id = $3 then journal_events else 0 end,
       connectivity_at = case when connectivity = 'connected' then connectivity_at else compute_now() end,
       connectivity = 'connected'
     where id = $1 and state <> 'retired'
     returning epoch, tenant_id, name, observed_generation, old.connectivity as before,
       old.journal_id as journal_before, journal_events`,
    [s.nodeId, s.gatewayId, s.journalId, s.bootId, s.bcdVersion],
  );
  return row;
}

export async function sectionHashes(tx: Sql, nodeId: string): Promise<Record<string, string>> {
  const rows = await tx.query<{ section: string; hash: string }>(
    'select section, hash from node_sections where node_id = $1',
    [nodeId],
  );
  return Object.fromEntries(rows.map((r) => [r.section, r.hash]));
}

export async function specGeneration(tx: Sql, nodeId: string): Promise<number> {
  const [row] = await tx.query<{ generation: number }>('select generation from node_specs where node_id = $1', [
    nodeId,
  ]);
  return row?.generation ?? 0;
}

export interface ChangedRow extends Record<string, unknown> {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
}

/** Those that still stand under the epoch they were given; a newer session elsewhere keeps the node connected. */
export function lose(tx: Sql, nodeIds: readonly string[], epochs: readonly number[]): Promise<ChangedRow[]> {
  return tx.query<ChangedRow>(
    `update nodes n set connectivity = 'unreachable', connectivity_at = compute_now()
     from unnest($1::text[], $2::bigint[]) s (id, epoch)
     where n.id = s.id and n.epoch = s.epoch and n.connectivity = 'connected'
     returning n.id, n.tenant_id, n.name`,
    [nodeIds, epochs],
  );
}

/** Sessions that stood all the while, although nobody could say so. */
export function restore(tx: Sql, nodeIds: readonly string[], epochs: readonly number[]): Promise<ChangedRow[]> {
  return tx.query<ChangedRow>(
    `update nodes n set connectivity = 'connected', connectivity_at = compute_now()
     from unnest($1::text[], $2::bigint[]) s (id, epoch)
     where n.id = s.id and n.epoch = s.epoch and n.connectivity <> 'connected' and n.state <> 'retired'
     returning n.id, n.tenant_id, n.name`,
    [nodeIds, epochs],
  );
}

export interface SweptRow extends Record<string, unknown> {
  readonly id: string;
  readonly epoch: number | null;
  readonly state: string | null;
  readonly connectivity: string | null;
  readonly generation: number | null;
}

/** Of many sessions those where the books say something else than the gateway believes. */
export function differing(
  db: Sql,
  nodeIds: readonly string[],
  epochs: readonly number[],
  delivered: readonly number[],
): Promise<SweptRow[]> {
  return db.query<SweptRow>(
    `select s.id, n.epoch, n.state, n.connectivity, p.generation
     from unnest($1::text[], $2::bigint[], $3::bigint[]) s (id, epoch, delivered)
     left join nodes n on n.id = s.id left join node_specs p on p.node_id = s.id
     where n.id is null or n.epoch <> s.epoch or n.connectivity <> 'connected' or n.state = 'retired'
       or p.generation > s.delivered`,
    [nodeIds, epochs, delivered],
  );
}

export interface SpecRow extends Record<string, unknown> {
  readonly node_id: string;
  readonly generation: number;
  readonly canonical: string;
  readonly sha256: string;
}

export function specs(db: Sql, nodeIds: readonly string[]): Promise<SpecRow[]> {
  return db.query<SpecRow>(
    'select node_id, generation, canonical, sha256 from node_specs where node_id = any($1::text[])',
    [nodeIds],
  );
}

export interface NodeRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly site_id: string;
  readonly pool_id: string;
  readonly name: string;
  readonly journal_id: string | null;
  readonly journal_events: number;
  readonly hardware_key: string | null;
  readonly gpu_faults: Json;
  readonly pool_class: string;
  readonly region: string | null;
  readonly now: Instant;
  /** What deadlines go by. */
  readonly steady: Instant;
}

/** Locks the node for a write under this epoch; undefined when a newer session took over. */
export async function lockNode(tx: Sql, nodeId: string, epoch: number | null): Promise<NodeRow | undefined> {
  const [row] = await tx.query<NodeRow>(
    `select n.tenant_id, n.site_id, n.pool_id, n.name, n.journal_id, n.journal_events, n.hardware_key, n.gpu_faults,
       p.class as pool_class, s.iam_region as region, compute_now() as now, steady_now() as steady
     from nodes n join pools p on p.id = n.pool_id join sites s on s.id = n.site_id
     where n.id = $1 and ($2::bigint is null or n.epoch = $2) for no key update of n`,
    [nodeId, epoch],
  );
  return row;
}

/** True when the generation rose. */
export async function observed(tx: Sql, nodeId: string, epoch: number, generation: number): Promise<boolean> {
  const [row] = await tx.query<{ rose: boolean }>('select node_observed($1, $2, $3) as rose', [
    nodeId,
    epoch,
    generation,
  ]);
  return row!.rose;
}

/** Reservations that hold something on the node. */
export async function holders(tx: Sql, nodeId: string): Promise<string[]> {
  const rows = await tx.query<{ id: string }>(
    'select distinct reservation_id as id from allocations where node_id = $1 and released_at is null order by 1',
    [nodeId],
  );
  return rows.map((r) => r.id);
}

export interface ConditionRow {
  readonly type: string;
  readonly subject: string;
  readonly effect: string;
  readonly reason: string;
  readonly message: string;
}

/** Makes the conditions of these types exactly the given ones. `since` moves only when reason or effect did. */
export async function replaceConditions(
  tx: Sql,
  nodeId: string,
  types: readonly string[],
  rows: readonly ConditionRow[],
): Promise<boolean> {
  const json = JSON.stringify(rows);
  const columns = 'as r (type text, subject text, effect text, reason text, message text)';
  const gone = await tx.query(
    `delete from node_conditions c where node_id = $1 and type = any($2::text[]) and not exists (
       select 1 from jsonb_to_recordset($3::jsonb) ${columns} where r.type = c.type and r.subject = c.subject)
     returning 1`,
    [nodeId, types, json],
  );
  const changed = await tx.query(
    `insert into node_conditions as c (node_id, type, subject, effect, reason, message)
     select $1, type, subject, effect, reason, message from jsonb_to_recordset($2::jsonb) ${columns}
     on conflict (node_id, type, subject) do update set effect = excluded.effect, reason = excluded.reason,
       message = excluded.message,
       since = case when (c.effect, c.reason) = (excluded.effect, excluded.reason) then c.since else compute_now() end
     where (c.effect, c.reason, c.message) is distinct from (excluded.effect, excluded.reason, excluded.message)
     returning 1`,
    [nodeId, json],
  );
  return gone.length + changed.length > 0;
}

export async function setJournalEvents(tx: Sql, nodeId: string, through: number): Promise<void> {
  await tx.query('update nodes set journal_events = $2 where id = $1', [nodeId, through]);
}
