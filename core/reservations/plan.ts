/**
 * What a reservation needs next: a pure function of what was observed and the time. The reconciler `reservations`
 * observes, asks here and acts; nothing is decided anywhere else.
 */
import { addSeconds, type Instant, toMillis } from '../kernel/time.ts';
import type { ReservationState } from './states.ts';

/** A draft that nobody admitted is dropped after this. */
export const DRAFT_SECONDS_MAX = 86_400;
/** Hardware of a window to come is looked at so long before its start, and again at the start. */
export const REPAIR_SECONDS_AHEAD = 900;
/** Deadlines fire early rather than late, and a lost wake-up costs at most this. */
const RECHECK_SECONDS = 30;

export interface ObservedAllocation {
  readonly allocationId: string;
  readonly nodeId: string;
  readonly nodeName: string;
  /** First generation of the node's spec that holds it; undefined until the spec was composed. */
  readonly specGeneration?: number;
  /** First generation without it, once it is over. */
  readonly releaseGeneration?: number;
  readonly observedGeneration: number;
  readonly connectivity: string;
  /** The machine is known to hold nothing any more. */
  readonly fenced: boolean;
  readonly released: boolean;
  /** Its window began and its devices are in its hands. */
  readonly held: boolean;
  /** Another reservation that is over in the books and has not let go of one of the devices. */
  readonly heldBy?: string;
  /** What is wrong with its hardware, in words; told of windows that have not begun. */
  readonly ailing: readonly string[];
  /** When other hardware was last looked for, and none found. */
  readonly triedAt?: Instant;
}

export interface ObservedReservation {
  readonly state: ReservationState;
  readonly createdAt: Instant;
  readonly startsAt?: Instant;
  /** It was told to give way at its end. */
  readonly preempted?: boolean;
  readonly endsAt?: Instant;
  readonly leaseExpiresAt?: Instant;
  readonly allocations: readonly ObservedAllocation[];
}

export type ReservationStep =
  | { readonly do: 'nothing' }
  | { readonly do: 'wait'; readonly reason: string; readonly recheckAt: Instant }
  | { readonly do: 'abandon'; readonly reason: string }
  | { readonly do: 'cancel'; readonly reason: string }
  /** Look for other hardware for these allocations, whose window has not begun. */
  | { readonly do: 'repair'; readonly allocationIds: readonly string[] }
  /** The window began: take the devices in hand. */
  | { readonly do: 'begin' }
  | { readonly do: 'activate' }
  | { readonly do: 'release'; readonly reason: 'expired' | 'preempted' | 'lease-lapsed' }
  /** Free these allocations; `done` when none is left after them. */
  | {
      readonly do: 'settle';
      readonly allocationIds: readonly string[];
      readonly done: boolean;
      readonly reason: string;
    };

const earliest = (...at: (Instant | undefined)[]): Instant =>
  at.filter((x) => x !== undefined).reduce((a, b) => (toMillis(a) <= toMillis(b) ? a : b));

/** Has the machine put the devices in place? */
const confirmed = (a: ObservedAllocation): boolean =>
  a.specGeneration !== undefined && a.observedGeneration >= a.specGeneration;

/** Has the machine let go, or is it known to hold nothing? */
const letGo = (a: ObservedAllocation): boolean =>
  a.fenced || (a.releaseGeneration !== undefined && a.observedGeneration >= a.releaseGeneration);

function waitingFor(a: ObservedAllocation, generation: number | undefined, what: string): string {
  const name = `node ${a.nodeName}`;
  if (generation === undefined) return `the spec of ${name} is being composed`;
  const gap = `${name} has observed generation ${a.observedGeneration} of ${generation} and has not ${what}`;
  return a.connectivity === 'connected' ? gap : `${gap}; it is ${a.connectivity}`;
}

export function planReservation(r: ObservedReservation, now: Instant): ReservationStep {
  const due = (at: Instant | undefined) => at !== undefined && toMillis(at) <= toMillis(now);
  const recheckAt = addSeconds(now, RECHECK_SECONDS);
  switch (r.state) {
    case 'released':
    case 'abandoned':
      return { do: 'nothing' };
    case 'draft': {
      const until = addSeconds(r.createdAt, DRAFT_SECONDS_MAX);
      if (due(until)) return { do: 'abandon', reason: 'never admitted' };
      return {
        do: 'wait',
        reason: 'draft: not admitted; repeat the request with the same key, or let it drop',
        recheckAt: until,
      };
    }
    case 'scheduled':
      return planWindow(r, now);
    case 'booked':
    case 'active': {
      if (due(r.endsAt)) return { do: 'release', reason: r.preempted === true ? 'preempted' : 'expired' };
      if (due(r.leaseExpiresAt)) return { do: 'release', reason: 'lease-lapsed' };
      const end = earliest(r.endsAt, r.leaseExpiresAt);
      if (r.state === 'active') {
        const how = r.preempted === true ? 'gives way' : 'ends';
        return {
          do: 'wait',
          reason: `in use; ${how} at ${end}${r.preempted ? '' : ' unless renewed'}`,
          recheckAt: end,
        };
      }
      const missing = r.allocations.find((a) => !confirmed(a));
      if (missing === undefined) return { do: 'activate' };
      return {
        do: 'wait',
        reason: waitingFor(missing, missing.specGeneration, 'confirmed the devices'),
        recheckAt: earliest(recheckAt, end),
      };
    }
    case 'releasing': {
      const held = r.allocations.filter((a) => !a.released);
      const free = held.filter(letGo);
      const first = held.find((a) => !letGo(a));
      if (free.length > 0 || held.length === 0) {
        return {
          do: 'settle',
          allocationIds: free.map((a) => a.allocationId),
          done: first === undefined,
          reason: free.some((a) => a.fenced) ? 'fenced' : 'let go',
        };
      }
      return { do: 'wait', reason: waitingFor(first!, first!.releaseGeneration, 'let go of the devices'), recheckAt };
    }
  }
}

/** A window that has not begun: its hardware is looked after, then it begins. */
function planWindow(r: ObservedReservation, now: Instant): ReservationStep {
  const start = r.startsAt!;
  const past = (at: Instant) => toMillis(at) <= toMillis(now);
  if (r.endsAt !== undefined && past(r.endsAt)) return { do: 'cancel', reason: 'window passed' };
  const lookAt = addSeconds(start, -REPAIR_SECONDS_AHEAD);
  if (!past(lookAt)) return { do: 'wait', reason: `begins at ${start}`, recheckAt: lookAt };
  const ailing = r.allocations.filter((a) => a.ailing.length > 0);
  const untried = ailing.filter((a) => a.triedAt === undefined || past(addSeconds(a.triedAt, RECHECK_SECONDS)));
  if (untried.length > 0) return { do: 'repair', allocationIds: untried.map((a) => a.allocationId) };
  const recheckAt = addSeconds(now, RECHECK_SECONDS);
  if (!past(start)) {
    const about = ailing.map((a) => `node ${a.nodeName}: ${a.ailing.join(', ')}`).join('; ');
    if (about === '') return { do: 'wait', reason: `begins at ${start}`, recheckAt: earliest(start, recheckAt) };
    return {
      do: 'wait',
      reason: `begins at ${start}; nothing was found in place of ${about}`,
      recheckAt: earliest(start, recheckAt),
    };
  }
  const blocked = r.allocations.find((a) => a.heldBy !== undefined);
  if (blocked === undefined) return { do: 'begin' };
  return {
    do: 'wait',
    reason: `its window began; ${blocked.heldBy} is over and has not let go of devices on node ${blocked.nodeName}`,
    recheckAt,
  };
}
