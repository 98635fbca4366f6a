/** What a node reports about its spec and about itself. */
import type { Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Instant } from '#core/kernel/time.ts';
import { mutate } from '#db/mutate.ts';
import { type GatewayContext, mutationOf } from './context.ts';
import * as sql from './queries.ts';

export interface SpecReport {
  /** The last generation that was converged whole. */
  readonly generation: number;
  readonly attemptedGeneration: number;
  readonly errors: readonly { readonly section: string; readonly reason: string; readonly message: string }[];
}

/** Stands while the newest spec cannot be converged: new work would only wait on this machine. */
const NOT_CONVERGED = 'SpecNotConverged';
const MESSAGE_LENGTH_MAX = 500;

const stale = (nodeId: string, epoch: number) =>
  problem('STALE_EPOCH', `node ${nodeId} has a newer session than epoch ${epoch}`);

/** Stores what the node has converged and what it could not. Throws STALE_EPOCH. Safe to repeat. */
export async function recordObserved(
  ctx: GatewayContext,
  nodeId: string,
  epoch: number,
  report: SpecReport,
): Promise<void> {
  const waiting = await mutate(mutationOf(ctx), async (tx) => {
    await sql.lockCapacity(tx, [nodeId]);
    if ((await sql.lockNode(tx, nodeId, epoch)) === undefined) throw stale(nodeId, epoch);
    const errors = report.errors.slice(0, 20).map((e) => ({
      type: NOT_CONVERGED,
      subject: e.section.slice(0, 64),
      effect: 'none',
      reason: e.reason.slice(0, 64) || 'Failed',
      message: `generation ${report.attemptedGeneration}: ${e.message}`.slice(0, MESSAGE_LENGTH_MAX),
    }));
    const [first] = errors;
    // One row without subject stops the node; those with the section's name say where to look.
    const whole =
      first === undefined
        ? []
        : [{ ...first, subject: '', effect: 'NoSchedule', message: `${first.subject}: ${first.message}` }];
    const changed = await sql.replaceConditions(tx, nodeId, [NOT_CONVERGED], [...whole, ...errors]);
    // 0 is what a daemon says before its first generation; there is nothing to confirm in it.
    const advanced = report.generation > 0 && (await sql.observed(tx, nodeId, epoch, report.generation));
    if (changed) {
      await sql.refresh(tx, [nodeId]);
      tx.wake('nodes.health', nodeId);
    }
    return advanced ? await sql.holders(tx, nodeId) : [];
  });
  // node_observed() woke them in SQL, which the mutation does not see.
  if (waiting.length > 0) {
    ctx.poke?.([{ kind: 'nodes.health', key: nodeId }, ...waiting.map((key) => ({ kind: 'reservations', key }))]);
  }
}

export interface ReportedEvent {
  readonly number: number;
  readonly type: string;
  readonly at: Instant;
  readonly data: Json;
}

const EVENT_TYPE = /^[a-z][a-z0-9_.-]{0,63}$/;

/**
 * Publishes events of the node's journal, each once: those up to the stored number are repetitions. Answers the number
 * up to which all are stored.
 */
export function recordEvents(
  ctx: GatewayContext,
  nodeId: string,
  epoch: number,
  events: readonly ReportedEvent[],
): Promise<number> {
  return mutate(mutationOf(ctx), async (tx) => {
    const node = await sql.lockNode(tx, nodeId, epoch);
    if (node === undefined) throw stale(nodeId, epoch);
    let through = node.journal_events;
    for (const e of [...events].sort((a, b) => a.number - b.number)) {
      if (e.number <= through) continue;
      through = e.number;
      // Not thrown: an event that nobody can read must not block those behind it for ever.
      const type = EVENT_TYPE.test(e.type) ? e.type : 'unreadable';
      tx.emit({
        type: 'node.event',
        tenantId: node.tenant_id,
        kind: 'node',
        id: nodeId,
        data: { id: nodeId, name: node.name, event: type, at: e.at.slice(0, 64), number: e.number, data: e.data },
      });
    }
    if (through !== node.journal_events) await sql.setJournalEvents(tx, nodeId, through);
    return through;
  });
}
