/** Desired state of nodes: composing a NodeSpec from what the node shall hold. */
import { canonicalJson, type Json, sha256Hex } from '#core/kernel/canonical-json.ts';
import { composeSpec } from '#core/nodes/spec.ts';
import { type MutationContext, mutate } from '#db/mutate.ts';
import * as sql from './queries.ts';

/**
 * Brings the stored spec in line with the books. The generation rises only when the document changed. Safe to run twice
 * at once. Answers the generation, or undefined when there is no such node.
 */
export function compose(
  ctx: MutationContext,
  nodeId: string,
): Promise<{ generation: number; changed: boolean } | undefined> {
  return mutate(ctx, async (tx) => {
    if (!(await sql.lockNode(tx, nodeId))) return undefined;
    const canonical = canonicalJson(composeSpec(await sql.holdings(tx, nodeId)) as unknown as Json);
    const sha256 = sha256Hex(canonical);
    const before = await sql.current(tx, nodeId);
    const changed = before?.sha256 !== sha256;
    const generation = changed ? (before?.generation ?? 0) + 1 : before.generation;
    if (changed) await sql.store(tx, nodeId, generation, canonical, sha256);
    for (const id of await sql.markAllocations(tx, nodeId, generation)) tx.wake('reservations', id);
    return { generation, changed };
  });
}
