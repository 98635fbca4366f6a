/** SQL of admissions and certificates. */
import type { ClockReading } from '#core/join/certificate-policy.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';

export async function clock(db: Sql): Promise<ClockReading> {
  const [row] = await db.query<{ now: Instant; steady: Instant }>(
    'select compute_now() as now, steady_now() as steady',
  );
  return row!;
}

export interface NodeRow extends Record<string, unknown> {
  readonly id: string;
  readonly name: string;
  readonly tenant_id: string;
  readonly site_id: string;
  readonly pool_id: string;
  readonly state: string;
  readonly role: string;
  readonly connectivity: string;
  readonly epoch: number;
}

const NODE = 'id, name, tenant_id, site_id, pool_id, state, role, connectivity, epoch';

export async function lockNode(tx: Sql, nodeId: string): Promise<NodeRow | undefined> {
  const [row] = await tx.query<NodeRow>(`select ${NODE} from nodes where id = $1 for no key update`, [nodeId]);
  return row;
}

/** Two joins of one machine follow each other, so that it never becomes two nodes. */
export async function lockHardwareKey(tx: Sql, key: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`hardware/${key}`]);
}

/** The machine that came back: same trusted hardware key, same pool. The last that joined, should there be several. */
export async function lockByHardwareKey(tx: Sql, key: string, poolId: string): Promise<NodeRow | undefined> {
  const [row] = await tx.query<NodeRow>(
    `select ${NODE} from nodes where hardware_key = $1 and hardware_key_trusted and pool_id = $2 and state <> 'retired'
     order by joined_at desc, id desc limit 1 for no key update`,
    [key, poolId],
  );
  return row;
}

export interface NodeFacts {
  readonly id: string;
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly role: string;
  readonly hardwareKey: string | null;
  readonly hardwareKeyTrusted: boolean;
  readonly hardware: Json;
}

/** Tries the names in their order and answers the one that was free in the pool. */
export async function insertNode(tx: Sql, node: NodeFacts, names: readonly string[]): Promise<string> {
  for (const name of names) {
    const [row] = await tx.query<{ name: string }>(
      `insert into nodes (id, tenant_id, site_id, pool_id, name, role, hardware_key, hardware_key_trusted, hardware)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (pool_id, name) do nothing returning name`,
      [
        node.id,
        node.tenantId,
        node.siteId,
        node.poolId,
        name,
        node.role,
        node.hardwareKey,
        node.hardwareKeyTrusted,
        JSON.stringify(node.hardware),
      ],
    );
    if (row !== undefined) return row.name;
  }
  throw new Error('no free node name among the candidates');
}

export async function rejoined(tx: Sql, node: NodeFacts): Promise<void> {
  await tx.query(
    `update nodes set joined_at = compute_now(), hardware = $2, version = version + 1,
       hardware_key = case when $4 or not hardware_key_trusted then $3 else hardware_key end,
       hardware_key_trusted = hardware_key_trusted or $4
     where id = $1`,
    [node.id, JSON.stringify(node.hardware), node.hardwareKey, node.hardwareKeyTrusted],
  );
}

export async function rememberAdmission(
  tx: Sql,
  admission: { tokenId: string; keyHash: string; nodeId: string; sourceIp: string | null },
): Promise<void> {
  await tx.query(
    `insert into join_admissions (token_id, key_hash, node_id, source_ip) values ($1, $2, $3, $4)
     on conflict (token_id, key_hash) do update set node_id = excluded.node_id, source_ip = excluded.source_ip,
       at = compute_now()`,
    [admission.tokenId, admission.keyHash, admission.nodeId, admission.sourceIp],
  );
}

export async function insertCertificate(
  tx: Sql,
  c: { id: string; nodeId: string; serial: string; keyHash: string; role: string; notBefore: string; notAfter: string },
): Promise<void> {
  await tx.query(
    `insert into node_certificates (id, node_id, serial, key_hash, role, not_before, not_after)
     values ($1, $2, $3, $4, $5, $6, $7)`,
    [c.id, c.nodeId, c.serial, c.keyHash, c.role, c.notBefore, c.notAfter],
  );
}

/** Keys that the machine had before it was admitted anew are worth nothing from now on. */
export async function revokeOtherKeys(tx: Sql, nodeId: string, keyHash: string): Promise<void> {
  await tx.query(
    `update node_certificates set revoked_at = compute_now()
     where node_id = $1 and key_hash <> $2 and revoked_at is null`,
    [nodeId, keyHash],
  );
}

/** Expired beyond the time in which they may still prove a key. */
export async function forgetOldCertificates(tx: Sql, nodeId: string, seconds: number): Promise<void> {
  await tx.query(
    `delete from node_certificates where node_id = $1 and not_after < steady_now() - make_interval(secs => $2)`,
    [nodeId, seconds],
  );
}

export interface CertificateRow extends Record<string, unknown> {
  readonly node_id: string;
  readonly role: string;
  readonly revoked: boolean;
  readonly expired: boolean;
}

export async function certificate(tx: Sql, serial: string): Promise<CertificateRow | undefined> {
  const [row] = await tx.query<CertificateRow>(
    `select node_id, role, revoked_at is not null as revoked, not_after <= steady_now() as expired
     from node_certificates where serial = $1`,
    [serial],
  );
  return row;
}

export interface PoolRow extends Record<string, unknown> {
  readonly class: string;
  readonly gpu_model: string | null;
  readonly iam_region: string | null;
}

export async function poolOf(tx: Sql, poolId: string): Promise<PoolRow | undefined> {
  const [row] = await tx.query<PoolRow>(
    `select p.class, p.gpu_model, s.iam_region from pools p join sites s on s.id = p.site_id where p.id = $1`,
    [poolId],
  );
  return row;
}

/** A refusal commits although nothing else does, so it does not go the way of an admitted change. */
export async function auditRefusal(
  tx: Sql,
  record: { tenantId: string; type: string; id: string; context: Json; data: Json },
): Promise<void> {
  await tx.query('select audit($1, $2, $3, $4, $5, $6, $7)', [
    record.tenantId,
    'compute:nodes:join',
    record.type,
    record.id,
    'deny',
    JSON.stringify(record.context),
    JSON.stringify(record.data),
  ]);
}
