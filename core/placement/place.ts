/**
 * Where does a request fit? A pure function of the request and a snapshot: equal input, equal answer. It only
 * proposes; `device_bookings_no_overlap` and the row locks of reservation_admit() decide.
 */
import type { PlacementReason } from '../kernel/errors.ts';
import { type Attributes, describe, matches, type Selector } from './selectors.ts';

export interface DeviceWant {
  readonly class: string;
  readonly count: number;
  readonly selectors?: readonly Selector[];
}

export interface CandidateDevice {
  readonly no: number;
  readonly class: string;
  readonly slot: number;
  readonly attributes: Attributes;
  /** bookable, present, healthy and held by nobody. */
  readonly free: boolean;
  /** Why not, in words: `held`, `unhealthy: …`, `not bookable`. */
  readonly why?: string;
}

export interface CandidateNode {
  readonly nodeId: string;
  readonly name: string;
  /** Why the node takes no work at all; empty when it does. */
  readonly reasons: readonly string[];
  readonly devices: readonly CandidateDevice[];
}

export interface Proposal {
  readonly nodeId: string;
  readonly deviceNos: readonly number[];
}

export interface PlacementAnswer {
  /** Best first. */
  readonly proposals: readonly Proposal[];
  /** Every node that cannot hold it, grouped by reason; most nodes first. */
  readonly refused: readonly PlacementReason[];
  /** Free devices of the wanted classes on nodes that take work. */
  readonly free: number;
}

const PROPOSALS_MAX = 8;
const REASONS_MAX = 16;

/** How many of each class a request wants in all. */
export function wantsByClass(wants: readonly DeviceWant[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const w of wants) sum[w.class] = (sum[w.class] ?? 0) + w.count;
  return sum;
}

/** The class that decides the search: the one asked for most; the name breaks a tie. */
export function leadClass(wants: readonly DeviceWant[]): string {
  const sum = Object.entries(wantsByClass(wants));
  sum.sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  return sum[0]![0];
}

export const hasSelectors = (wants: readonly DeviceWant[]): boolean =>
  wants.some((w) => w.selectors !== undefined && w.selectors.length > 0);

const fits = (w: DeviceWant, d: CandidateDevice): boolean =>
  d.class === w.class && (w.selectors ?? []).every((s) => matches(s, d.attributes));

/**
 * Chooses devices so that every want has its count and no device serves two: bipartite matching by augmenting paths,
 * since taking the first fit can fail where wants overlap. Undefined when there is none.
 */
function assign(wants: readonly DeviceWant[], free: readonly CandidateDevice[]): number[] | undefined {
  const seats = wants.flatMap((w) => Array.from({ length: w.count }, () => w));
  const holder = new Map<number, number>();
  const seatOf = (seat: number, seen: Set<number>): boolean => {
    for (const d of free) {
      if (seen.has(d.no) || !fits(seats[seat]!, d)) continue;
      seen.add(d.no);
      const other = holder.get(d.no);
      if (other === undefined || seatOf(other, seen)) {
        holder.set(d.no, seat);
        return true;
      }
    }
    return false;
  };
  for (let seat = 0; seat < seats.length; seat++) if (!seatOf(seat, new Set())) return undefined;
  return [...holder.keys()].sort((a, b) => a - b);
}

type Refusal = readonly [code: string, message: string];

function refusalOf(wants: readonly DeviceWant[], node: CandidateNode, free: readonly CandidateDevice[]): Refusal {
  if (node.reasons.length > 0) return ['NODE_UNSCHEDULABLE', node.reasons[0]!];
  for (const w of wants) {
    const ofClass = node.devices.filter((d) => d.class === w.class);
    if (ofClass.length < w.count) return ['TOO_FEW_DEVICES', `has ${ofClass.length} ${w.class}, wanted ${w.count}`];
    for (const s of w.selectors ?? []) {
      const left = ofClass.filter((d) => matches(s, d.attributes)).length;
      if (left < w.count) return ['SELECTOR_MISMATCH', `${left} ${w.class} with ${describe(s)}, wanted ${w.count}`];
    }
    const left = free.filter((d) => fits(w, d)).length;
    if (left < w.count) return ['DEVICES_IN_USE', `${left} matching ${w.class} free, wanted ${w.count}`];
  }
  return ['WANTS_OVERLAP', 'the same devices would have to serve two parts of the request'];
}

/** Places a request on one node. Best fit: the node with the fewest free devices of the lead class left over. */
export function place(wants: readonly DeviceWant[], nodes: readonly CandidateNode[]): PlacementAnswer {
  const lead = leadClass(wants);
  const classes = new Set(wants.map((w) => w.class));
  const found: { left: number; proposal: Proposal }[] = [];
  const refused = new Map<string, { code: string; message: string; nodes: number; example: string }>();
  let freeInAll = 0;
  for (const node of nodes) {
    const free = node.devices
      .filter((d) => d.free && classes.has(d.class))
      .sort((a, b) => a.slot - b.slot || a.no - b.no);
    if (node.reasons.length === 0) freeInAll += free.length;
    const chosen = node.reasons.length === 0 ? assign(wants, free) : undefined;
    if (chosen !== undefined) {
      const left = free.filter((d) => d.class === lead).length;
      found.push({ left, proposal: { nodeId: node.nodeId, deviceNos: chosen } });
      continue;
    }
    const [code, message] = refusalOf(wants, node, free);
    const key = `${code} ${message}`;
    const known = refused.get(key);
    if (known === undefined) refused.set(key, { code, message, nodes: 1, example: node.name });
    else known.nodes++;
  }
  found.sort((a, b) => a.left - b.left || (a.proposal.nodeId < b.proposal.nodeId ? -1 : 1));
  return {
    proposals: found.slice(0, PROPOSALS_MAX).map((f) => f.proposal),
    refused: [...refused.values()]
      .sort((a, b) => b.nodes - a.nodes || (a.message < b.message ? -1 : 1))
      .slice(0, REASONS_MAX),
    free: freeInAll,
  };
}
