/** Why no gang fits: the answer to "so many whole nodes, all or none" over a snapshot of some nodes. Pure. */
import type { PlacementReason } from '../kernel/errors.ts';
import type { CandidateNode } from './place.ts';

const REASONS_MAX = 16;

/** `counts`: what each node must have at least. A node is whole when all that it has of these classes is free. */
export function whyNoGang(
  counts: Readonly<Record<string, number>>,
  nodes: readonly CandidateNode[],
  gang: { readonly nodes: number; readonly sameLabel?: string | undefined },
): { free: number; reasons: PlacementReason[] } {
  const refused = new Map<string, { code: string; message: string; nodes: number; example: string }>();
  let whole = 0;
  let free = 0;
  for (const node of nodes) {
    const [code, message] = judge(counts, node);
    const open = node.devices.filter((d) => d.free && d.class in counts).length;
    if (node.reasons.length === 0) free += open;
    if (code === undefined) {
      whole++;
      continue;
    }
    const known = refused.get(`${code} ${message}`);
    if (known === undefined)
      refused.set(`${code} ${message}`, { code, message: message!, nodes: 1, example: node.name });
    else known.nodes++;
  }
  const sorted = [...refused.values()].sort((a, b) => b.nodes - a.nodes || (a.message < b.message ? -1 : 1));
  const inAll: PlacementReason =
    whole >= gang.nodes && gang.sameLabel !== undefined
      ? {
          code: 'GANG_SPLIT',
          message: `${whole} whole nodes are free, but not ${gang.nodes} with one value of ${gang.sameLabel}`,
          nodes: whole,
        }
      : { code: 'GANG_TOO_FEW_NODES', message: `${whole} whole nodes are free, wanted ${gang.nodes}`, nodes: whole };
  return { free, reasons: [inAll, ...sorted].slice(0, REASONS_MAX) };
}

function judge(counts: Readonly<Record<string, number>>, node: CandidateNode): [code?: string, message?: string] {
  if (node.reasons.length > 0) return ['NODE_UNSCHEDULABLE', node.reasons[0]!];
  for (const [deviceClass, count] of Object.entries(counts)) {
    const all = node.devices.filter((d) => d.class === deviceClass);
    if (all.length < count) return ['TOO_FEW_DEVICES', `has ${all.length} ${deviceClass}, wanted ${count}`];
    const open = all.filter((d) => d.free).length;
    if (open < all.length) return ['NOT_WHOLE', `${open} of ${all.length} ${deviceClass} free`];
  }
  return [];
}
