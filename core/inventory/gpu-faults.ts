/**
 * Which driver errors (XIDs) keep a GPU out of placement, and until when. Two classes: `transient` (mostly a program's
 * own fault) clears after ten clean minutes; `fatal` stays until somebody reset the GPU and a check passed. Known
 * faults live in the control plane, so a daemon that restarts and has forgotten them does not heal anything.
 */
import { addSeconds, type Instant, toMillis } from '../kernel/time.ts';
import type { Gpu, GpuXid } from './sections.ts';

export type FaultClass = 'transient' | 'fatal';

interface XidSpec {
  readonly class: FaultClass;
  readonly doc: string;
}
const row = (faultClass: FaultClass, doc: string): XidSpec => ({ class: faultClass, doc });

/** Codes without a row are fatal: an error nobody knows is not proof of health. */
export const XIDS: Readonly<Record<number, XidSpec>> = {
  13: row('transient', 'graphics engine exception'),
  31: row('transient', 'memory page fault of a program'),
  43: row('transient', 'a program was stopped'),
  45: row('transient', 'clean-up after a program was killed'),
  48: row('fatal', 'double-bit memory error'),
  61: row('fatal', 'micro-controller breakpoint'),
  62: row('fatal', 'micro-controller halt'),
  63: row('transient', 'a memory row was remapped'),
  64: row('fatal', 'a memory row could not be remapped'),
  68: row('transient', 'video processor exception'),
  74: row('fatal', 'NVLink error'),
  79: row('fatal', 'the GPU has fallen off the bus'),
  92: row('transient', 'many corrected memory errors'),
  94: row('transient', 'contained memory error'),
  95: row('fatal', 'uncontained memory error'),
  109: row('transient', 'context switch timeout'),
  119: row('fatal', 'GPU system processor timeout'),
  120: row('fatal', 'GPU system processor error'),
  140: row('fatal', 'unrecovered memory error'),
  143: row('fatal', 'the GPU could not be initialized'),
};

export const CLEAN_PERIOD_SECONDS = 600;

export interface GpuFault {
  /** The GPU's UUID. */
  readonly stableId: string;
  readonly code: number;
  readonly class: FaultClass;
  /** When it was last seen. */
  readonly at: Instant;
  readonly doc: string;
}

export interface FaultReview {
  readonly faults: readonly GpuFault[];
  /** When the next fault clears by itself. */
  readonly recheckAt?: Instant;
}

export interface FaultInput {
  /** What the control plane holds already. */
  readonly known: readonly GpuFault[];
  readonly xids: readonly GpuXid[];
  readonly gpus: readonly Gpu[];
  /** GPU UUID -> when a reset with a passed check was recorded. */
  readonly clearedAt: ReadonlyMap<string, Instant>;
  readonly now: Instant;
  /** What the clean period is judged by, where that is not `now`: it stands still after a jump of the clock. */
  readonly steady?: Instant;
}

export function reviewFaults(input: FaultInput): FaultReview {
  const now = toMillis(input.now);
  const steady = toMillis(input.steady ?? input.now);
  const byAddress = new Map(input.gpus.map((g) => [g.pciAddress, g.uuid]));
  const latest = new Map<string, GpuFault>();
  const see = (fault: GpuFault) => {
    const key = `${fault.stableId} ${fault.code}`;
    const old = latest.get(key);
    if (old === undefined || toMillis(old.at) < toMillis(fault.at)) latest.set(key, fault);
  };
  for (const fault of input.known) see(fault);
  for (const xid of input.xids) {
    const stableId = byAddress.get(xid.pciAddress);
    if (stableId === undefined) continue;
    const spec = XIDS[xid.code] ?? row('fatal', 'an error that is not in the table');
    // A machine whose clock runs ahead must not keep a fault alive for ever.
    const at = toMillis(xid.at) > now ? input.now : xid.at;
    see({ stableId, code: xid.code, class: spec.class, at, doc: spec.doc });
  }
  const faults: GpuFault[] = [];
  let recheckAt: Instant | undefined;
  for (const fault of latest.values()) {
    const cleared = input.clearedAt.get(fault.stableId);
    if (cleared !== undefined && toMillis(cleared) >= toMillis(fault.at)) continue;
    if (fault.class === 'transient') {
      const clearsAt = addSeconds(fault.at, CLEAN_PERIOD_SECONDS);
      if (toMillis(clearsAt) <= steady) continue;
      if (recheckAt === undefined || toMillis(clearsAt) < toMillis(recheckAt)) recheckAt = clearsAt;
    }
    faults.push(fault);
  }
  faults.sort((a, b) => (a.stableId < b.stableId ? -1 : a.stableId > b.stableId ? 1 : a.code - b.code));
  return { faults, ...(recheckAt === undefined ? {} : { recheckAt }) };
}
