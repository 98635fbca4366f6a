/** SQL of sections and devices. */
import type { Device, GpuFault, HardwareKey } from '#core/inventory/index.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import type { Sql } from '#core/kernel/database.ts';

export async function sections(tx: Sql, nodeId: string): Promise<Record<string, Json>> {
  const rows = await tx.query<{ section: string; data: Json }>(
    'select section, data from node_sections where node_id = $1',
    [nodeId],
  );
  return Object.fromEntries(rows.map((r) => [r.section, r.data]));
}

/**
 * `hash` is of what was sent, `merged` what is believed now: a reading that failed leaves the last good data in place,
 * and must still not be sent again and again. The trail keeps what was sent.
 */
export async function storeSection(
  tx: Sql,
  nodeId: string,
  name: string,
  hash: string,
  merged: unknown,
  sent: unknown,
): Promise<void> {
  const rows = await tx.query(
    `insert into node_sections as s (node_id, section, hash, data) values ($1, $2, $3, $4)
     on conflict (node_id, section) do update set hash = excluded.hash, data = excluded.data, at = compute_now()
     where s.hash <> excluded.hash returning 1`,
    [nodeId, name, hash, JSON.stringify(merged)],
  );
  if (rows.length === 0) return;
  await tx.query('insert into inventory_snapshots (node_id, section, hash, data) values ($1, $2, $3, $4)', [
    nodeId,
    name,
    hash,
    JSON.stringify(sent),
  ]);
}

export async function devicesOfNode(tx: Sql, nodeId: string): Promise<Device[]> {
  const rows = await tx.query<{
    class: Device['class'];
    stable_id: string;
    slot: number;
    attributes: Device['attributes'];
    bookable: boolean;
    health: Device['health'];
    health_reason: string | null;
    present: boolean;
  }>(
    `select class, stable_id, slot, attributes, bookable, health, health_reason, present
     from devices where node_id = $1 order by class, stable_id`,
    [nodeId],
  );
  return rows.map((r) => ({
    class: r.class,
    stableId: r.stable_id,
    slot: r.slot,
    attributes: r.attributes,
    bookable: r.bookable,
    health: r.health,
    ...(r.health_reason === null ? {} : { healthReason: r.health_reason }),
    present: r.present,
  }));
}

/** Brings the rows in line and answers those that are new or changed. Never deletes, never touches who holds one. */
export async function storeDevices(
  tx: Sql,
  nodeId: string,
  poolId: string,
  devices: readonly Device[],
  makeId: () => string,
): Promise<(Device & { readonly id: string })[]> {
  const byKey = new Map(devices.map((d) => [`${d.class} ${d.stableId}`, d]));
  const rows = await tx.query<{ id: string; class: string; stable_id: string }>(
    `insert into devices as d (id, node_id, pool_id, class, stable_id, slot, attributes, bookable, health, health_reason, present)
     select r.id, $1, $2, r.class, r."stableId", r.slot, r.attributes, r.bookable, r.health, r."healthReason", r.present
     from jsonb_to_recordset($3::jsonb) as r (id text, class text, "stableId" text, slot int, attributes jsonb,
       bookable boolean, health text, "healthReason" text, present boolean)
     order by r.class, r."stableId"
     on conflict (node_id, class, stable_id) do update set pool_id = excluded.pool_id, slot = excluded.slot,
       attributes = excluded.attributes, bookable = excluded.bookable, health = excluded.health,
       health_reason = excluded.health_reason, present = excluded.present, updated_at = compute_now()
     where (d.pool_id, d.slot, d.attributes, d.bookable, d.health, d.health_reason, d.present) is distinct from
       (excluded.pool_id, excluded.slot, excluded.attributes, excluded.bookable, excluded.health,
        excluded.health_reason, excluded.present)
     returning id, class, stable_id`,
    [nodeId, poolId, JSON.stringify(devices.map((d) => ({ id: makeId(), ...d })))],
  );
  return rows.map((r) => ({ ...byKey.get(`${r.class} ${r.stable_id}`)!, id: r.id }));
}

/** The hardware key follows the inventory, so that a machine whose GPU was replaced is still recognized. */
export async function storeFindings(
  tx: Sql,
  nodeId: string,
  faults: readonly GpuFault[],
  key: HardwareKey,
): Promise<void> {
  await tx.query(
    `update nodes set gpu_faults = $2,
       hardware_key = case when $4 then $3 else hardware_key end,
       hardware_key_trusted = hardware_key_trusted or $4
     where id = $1 and (gpu_faults is distinct from $2::jsonb or ($4 and (hardware_key, hardware_key_trusted) is distinct from ($3, true)))`,
    [nodeId, JSON.stringify(faults), key.key, key.trusted],
  );
}
