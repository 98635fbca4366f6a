/** SQL of spec composition. */
import type { Sql } from '#core/kernel/database.ts';
import type { SpecAllocation } from '#core/nodes/spec.ts';

/** Locks the node for composition: two composers of one node follow each other. False when there is no such node. */
export async function lockNode(tx: Sql, nodeId: string): Promise<boolean> {
  const rows = await tx.query('select 1 from nodes where id = $1 for no key update', [nodeId]);
  return rows.length > 0;
}

/** What the node shall hold: the allocations of reservations that are booked or active. */
export async function holdings(tx: Sql, nodeId: string): Promise<SpecAllocation[]> {
  const rows = await tx.query<{ a: SpecAllocation }>(
    `select jsonb_build_object('allocationId', a.id, 'reservationId', a.reservation_id, 'tenantId', a.tenant_id,
       'devices', coalesce((select jsonb_agg(jsonb_build_object('id', d.id, 'class', d.class, 'stableId', d.stable_id))
         from device_bookings b join devices d on d.no = b.device_no where b.allocation_id = a.id), '[]')) as a
     from allocations a join reservations r on r.id = a.reservation_id
     where a.node_id = $1 and a.released_at is null and r.state in ('booked', 'active') and r.binding = 'hold'
     order by a.id`,
    [nodeId],
  );
  return rows.map((r) => r.a);
}

export async function current(tx: Sql, nodeId: string): Promise<{ generation: number; sha256: string } | undefined> {
  const [row] = await tx.query<{ generation: number; sha256: string }>(
    'select generation, sha256 from node_specs where node_id = $1',
    [nodeId],
  );
  return row;
}

export async function store(
  tx: Sql,
  nodeId: string,
  generation: number,
  canonical: string,
  sha256: string,
): Promise<void> {
  await tx.query(
    `insert into node_specs (node_id, generation, spec, canonical, sha256) values ($1, $2, $3, $4, $5)
     on conflict (node_id) do update set generation = excluded.generation, spec = excluded.spec,
       canonical = excluded.canonical, sha256 = excluded.sha256, changed_at = compute_now()`,
    [nodeId, generation, canonical, canonical, sha256],
  );
  // A hint for the gateways; they poll as well.
  await tx.query("select pg_notify('node_spec', $1)", [nodeId]);
}

/** Notes which generation first holds, or first lets go of, each allocation. Answers the reservations concerned. */
export async function markAllocations(tx: Sql, nodeId: string, generation: number): Promise<string[]> {
  const rows = await tx.query<{ reservation_id: string }>(
    `update allocations a set
       spec_generation = case when r.state in ('booked', 'active') then coalesce(a.spec_generation, $2) else a.spec_generation end,
       release_generation = case when r.state = 'releasing' then coalesce(a.release_generation, $2) else a.release_generation end
     from reservations r
     where a.node_id = $1 and a.released_at is null and r.id = a.reservation_id
       and ((r.state in ('booked', 'active') and a.spec_generation is null)
         or (r.state = 'releasing' and a.release_generation is null))
     returning a.reservation_id`,
    [nodeId, generation],
  );
  return rows.map((r) => r.reservation_id).sort();
}
