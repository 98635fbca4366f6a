/** A node's first name: its host name where that is one, made unique by the end of its id. */
import type { Id } from '#core/kernel/ids.ts';

const NAME_LENGTH_MAX = 63;

/** Candidates in order; the last one is free, since it carries the id. */
export function nodeNames(hostname: string | undefined, nodeId: string | Id<'node'>): string[] {
  const tail = nodeId.slice(-8);
  const label = (hostname ?? '')
    .toLowerCase()
    .split('.')[0]!
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, NAME_LENGTH_MAX - tail.length - 1);
  if (label === '' || label === 'localhost') return [`node-${tail}`, `node-${nodeId.slice(5)}`];
  return [label, `${label}-${tail}`, `node-${nodeId.slice(5)}`];
}
