/**
 * BookingRepair: hardware that went bad before a window begins is swapped for equal hardware. The old allocation is
 * dropped and a new one taken in one transaction; where there is none, the old one stays and its holder is told why.
 */
import { newId } from '#core/kernel/ids.ts';
import { hasSelectors, leadClass, place, wantsByClass } from '#core/placement/place.ts';
import type { Tx } from '#db/mutate.ts';
import { narrowed } from './narrow.ts';
import * as sql from './queries.ts';

/** Nodes looked at for a request with selectors. */
const CANDIDATES = 256;

interface Part extends Record<string, unknown> {
  readonly id: string;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly devices: readonly { readonly id: string; readonly class: string; readonly stableId: string }[];
}

/** Answers how many allocations were replaced. */
export async function repair(tx: Tx, id: string, allocationIds: readonly string[]): Promise<number> {
  const row = await sql.lock(tx, id);
  if (row === undefined) return 0;
  let replaced = 0;
  for (const allocationId of [...allocationIds].sort()) {
    const { old, why, told } = await sql.ailingAllocation<Part>(tx, id, allocationId);
    const made = row.gang?.replace === false ? undefined : await elsewhere(tx, id, row, old);
    if (made !== undefined) {
      replaced++;
      tx.emit({
        type: 'reservation.repaired',
        tenantId: row.tenant_id,
        kind: 'reservation',
        id,
        data: { id, why: [...why], from: partOf(old), to: partOf(made) },
      });
      continue;
    }
    await sql.noteAiling(tx, allocationId, why);
    // Told once, and again when something else is wrong.
    if (JSON.stringify(told) !== JSON.stringify(why)) {
      tx.emit({
        type: 'reservation.ailing',
        tenantId: row.tenant_id,
        kind: 'reservation',
        id,
        data: { id, why: [...why], allocation: partOf(old) },
      });
    }
  }
  return replaced;
}

const partOf = (p: Part) => ({
  allocationId: p.id,
  nodeId: p.nodeId,
  nodeName: p.nodeName,
  devices: p.devices.map(({ id, stableId }) => ({ id, stableId })),
});

/** Drops the allocation and takes another; undefined, and nothing changed, where there is none. */
async function elsewhere(tx: Tx, id: string, row: sql.ReservationRow<never>, old: Part): Promise<Part | undefined> {
  await tx.query('savepoint repair');
  await tx.query('select allocation_drop($1)', [old.id]);
  const made = await take(tx, id, row, old);
  await tx.query(made === undefined ? 'rollback to savepoint repair' : 'release savepoint repair');
  return made;
}

async function take(tx: Tx, id: string, row: sql.ReservationRow<never>, old: Part): Promise<Part | undefined> {
  const allocationId = newId('allocation');
  if (row.gang !== null) {
    const had = wantsByClass(old.devices.map((d) => ({ class: d.class, count: 1 })));
    return sql.takeMember<Part>(tx, { id, allocationId, formerNode: old.nodeId, wants: had });
  }
  const wants = wantsByClass(row.devices);
  if (!hasSelectors(row.devices)) {
    return sql.takeSingle<Part>(tx, { id, allocationId, formerNode: old.nodeId, wants, lead: leadClass(row.devices) });
  }
  const window = { start: row.starts_at!, durationSeconds: row.duration_seconds };
  for (const reach of ['free', 'any'] as const) {
    const page = { reach, after: null, limit: CANDIDATES };
    const nodes = await sql.candidates(tx, row.pool_id, narrowed(row.devices), window, page);
    // Its own node first: what is good there is kept.
    const own = nodes.filter((n) => n.nodeId === old.nodeId);
    for (const proposal of [...place(row.devices, own).proposals, ...place(row.devices, nodes).proposals]) {
      const made = await sql.takeProposal<Part>(tx, { id, allocationId, wants, ...proposal });
      if (made !== undefined) return made;
    }
  }
  return undefined;
}
