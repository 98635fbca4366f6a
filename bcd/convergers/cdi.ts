/**
 * Converges the `devices` section of a NodeSpec: the CDI directory names exactly the devices of the live allocations.
 * Level-triggered and idempotent: it compares texts and writes what differs. Order matters: what is no longer booked
 * goes first, so that a device which moved from one allocation to another is never named twice.
 *
 * An allocation with a device that cannot be exposed now gets no file, or keeps the one that already names the same
 * devices (a GPU that was lost under a running workload stays where it is). Letting go never waits for that.
 */
import type { PartialSections } from '#core/inventory/index.ts';
import type { SpecAllocation } from '#core/nodes/spec.ts';
import type { CdiDirectory } from '../hands/hands.ts';
import { belongsTo, bookedIn, renderAllocation } from './cdi-spec.ts';

export interface CdiProblem {
  readonly allocationId: string;
  readonly deviceId: string;
  readonly stableId: string;
  readonly why: string;
}

export interface CdiOutcome {
  readonly written: readonly string[];
  readonly removed: readonly string[];
  readonly unchanged: readonly string[];
  /** Booked devices that no file names. The directory still names nothing that is not booked. */
  readonly problems: readonly CdiProblem[];
}

/** Rejects only when the directory cannot be read or written; the next run then starts over. */
export async function convergeCdi(
  cdi: CdiDirectory,
  allocations: readonly SpecAllocation[],
  sections: PartialSections,
): Promise<CdiOutcome> {
  const existing = await cdi.list();
  const wanted = new Map<string, string>();
  const problems: CdiProblem[] = [];
  for (const allocation of allocations) {
    const { files, unresolved } = renderAllocation(allocation, sections);
    if (unresolved.length === 0) {
      for (const [name, text] of files) wanted.set(name, text);
      continue;
    }
    for (const u of unresolved) problems.push({ allocationId: allocation.allocationId, ...u });
    const standing = [...existing].filter(([name]) => belongsTo(name, allocation.allocationId));
    if (namesExactly(standing, allocation)) for (const [name, text] of standing) wanted.set(name, text);
  }
  const removed = [...existing.keys()].filter((name) => !wanted.has(name));
  const shrinking = [...existing].filter(([name, text]) => wanted.has(name) && givesUp(text, wanted.get(name)!));
  for (const name of [...removed, ...shrinking.map(([name]) => name)]) await cdi.remove(name);
  const written: string[] = [];
  const unchanged: string[] = [];
  for (const [name, text] of wanted) {
    if (existing.get(name) === text) {
      unchanged.push(name);
      continue;
    }
    await cdi.write(name, text);
    written.push(name);
  }
  return { written, removed, unchanged, problems };
}

/** True when the old file names a device that the new one does not, or cannot be read. */
function givesUp(before: string, after: string): boolean {
  if (before === after) return false;
  const kept = new Set(bookedIn(after));
  return bookedIn(before)?.some((id) => !kept.has(id)) ?? true;
}

function namesExactly(files: readonly (readonly [string, string])[], allocation: SpecAllocation): boolean {
  const named = files.flatMap(([, text]) => bookedIn(text) ?? ['']).sort();
  const booked = allocation.devices.map((d) => d.id).sort();
  return booked.length > 0 && named.length === booked.length && named.every((id, i) => id === booked[i]);
}
