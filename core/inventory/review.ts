/**
 * What the control plane makes of an inventory that came in: which sections to store, which devices the node has, which
 * conditions stand. Pure, and safe to repeat: the same input gives the same answer.
 *
 * A section that could not be read never replaces data: the last good reading stays under the new status. So an empty
 * answer of a broken tool is not "this machine has no GPUs".
 */
import type { Instant } from '../kernel/time.ts';
import { type Condition, conditionsOf } from './conditions.ts';
import { type Device, devicesOf, keepKnown, type PoolClass } from './devices.ts';
import { type FaultReview, type GpuFault, reviewFaults } from './gpu-faults.ts';
import { type HardwareKey, hardwareIdentifiers, hardwareKey } from './hardware-key.ts';
import { type PartialSections, SECTION_NAMES } from './inventory.ts';

export interface ReviewInput {
  /** Sections stored for the node. */
  readonly known: PartialSections;
  /** Sections that arrived. */
  readonly incoming: PartialSections;
  readonly devices: readonly Device[];
  readonly faults: readonly GpuFault[];
  readonly clearedAt?: ReadonlyMap<string, Instant>;
  readonly poolClass: PoolClass;
  readonly now: Instant;
  /** What waits go by, where that is not `now`: it stands still after a jump of the clock. */
  readonly steady?: Instant;
}

export interface Review {
  /** What to store, for every section that is known or arrived. */
  readonly sections: PartialSections;
  /** Every device of the node from now on; those that left are `present: false`. */
  readonly devices: readonly Device[];
  /** Every condition that the inventory gives reason for; all others of `INVENTORY_CONDITIONS` end. */
  readonly conditions: readonly Condition[];
  readonly faults: readonly GpuFault[];
  /** Look again at this time although nothing arrives. */
  readonly recheckAt?: Instant;
  readonly hardwareKey: HardwareKey;
}

/** Lays what arrived over what is known. */
export function absorb(known: PartialSections, incoming: PartialSections): PartialSections {
  const merged: Record<string, unknown> = { ...known };
  for (const name of SECTION_NAMES) {
    const [old, fresh] = [known[name], incoming[name]];
    if (fresh === undefined) continue;
    const unread = fresh.status === 'failed' || fresh.status === 'absent';
    merged[name] = old !== undefined && unread ? { ...old, status: fresh.status, problems: fresh.problems } : fresh;
  }
  return merged as PartialSections;
}

export async function reviewInventory(input: ReviewInput): Promise<Review> {
  const sections = absorb(input.known, input.incoming);
  const { faults, recheckAt }: FaultReview = reviewFaults({
    known: input.faults,
    xids: sections.gpus?.xids ?? [],
    gpus: sections.gpus?.gpus ?? [],
    clearedAt: input.clearedAt ?? new Map(),
    now: input.now,
    ...(input.steady === undefined ? {} : { steady: input.steady }),
  });
  const key = await hardwareKey(hardwareIdentifiers(sections));
  const devices = keepKnown(input.devices, devicesOf(sections, { poolClass: input.poolClass, faults }));
  const conditions = conditionsOf({ sections, devices, faults, hardwareKey: key });
  return {
    sections,
    devices,
    conditions,
    faults,
    hardwareKey: key,
    ...(recheckAt === undefined ? {} : { recheckAt }),
  };
}
