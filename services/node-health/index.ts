/**
 * What becomes of a node's axes when something was learned about it: adoption once it converged, unreachable once its
 * gateway's lease ran out. Nothing it holds is released by either.
 */
import { nodeStates } from '#core/nodes/states.ts';
import { type MutationContext, mutate } from '#db/mutate.ts';

interface HealthRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly name: string;
  readonly state: keyof typeof nodeStates.states;
  readonly observed_generation: number;
  readonly sections: number;
  readonly generation: number | null;
}

export type HealthAnswer =
  | { readonly kind: 'gone' }
  | { readonly kind: 'settled' }
  | { readonly kind: 'waits'; readonly reason: string };

/** Recounts the node, adopts it when it has reported and converged, and says what is still missing. */
export function assess(ctx: MutationContext, nodeId: string): Promise<HealthAnswer> {
  return mutate(ctx, async (tx) => {
    await tx.query('select node_refresh($1)', [nodeId]);
    const [n] = await tx.query<HealthRow>(
      `select n.tenant_id, n.name, n.state, n.observed_generation,
         (select count(*) from node_sections s where s.node_id = n.id) as sections,
         (select generation from node_specs s where s.node_id = n.id) as generation
       from nodes n where n.id = $1`,
      [nodeId],
    );
    if (n === undefined) return { kind: 'gone' };
    if (n.generation === null) tx.wake('nodes.spec', nodeId);
    if (n.state !== 'adopting') return { kind: 'settled' };
    if (n.sections === 0) return { kind: 'waits', reason: `node ${n.name} has not sent its inventory yet` };
    if (n.observed_generation === 0)
      return { kind: 'waits', reason: `node ${n.name} has not converged generation 1 yet` };
    await tx.transition(nodeStates, nodeId, 'adopt');
    await tx.query('select node_refresh($1)', [nodeId]);
    tx.emit({
      type: 'node.ready',
      tenantId: n.tenant_id,
      kind: 'node',
      id: nodeId,
      data: { id: nodeId, name: n.name },
    });
    tx.audit({ tenantId: n.tenant_id, action: 'compute:nodes:adopt', type: 'compute-node', id: nodeId });
    return { kind: 'settled' };
  });
}

const LOST_BATCH = 500;

/**
 * Marks the nodes of gateways that are gone as unreachable, in batches. A live gateway marks its own; this is for the
 * one that died with its sessions. Answers how many.
 */
export function loseDeadGateways(ctx: MutationContext): Promise<number> {
  return mutate(ctx, async (tx) => {
    const lost = await tx.query<{ id: string; tenant_id: string; name: string; gateway_id: string }>(
      `update nodes set connectivity = 'unreachable', connectivity_at = compute_now()
       where id in (
         select n.id from nodes n left join leases l on l.name = 'gateway:' || n.gateway_id
         where n.connectivity = 'connected' and (l.name is null or l.expires_at + interval '40 seconds' <= steady_now())
         order by n.id limit $1 for no key update of n skip locked)
       returning id, tenant_id, name, gateway_id`,
      [LOST_BATCH],
    );
    for (const n of lost) {
      tx.emit({
        type: 'node.unreachable',
        tenantId: n.tenant_id,
        kind: 'node',
        id: n.id,
        data: { id: n.id, name: n.name, reason: `gateway ${n.gateway_id} is gone` },
      });
      tx.wake('nodes.health', n.id);
    }
    return lost.length;
  });
}
