/**
 * Sessions in the books: who holds a node's stream under which epoch, and what the node reported under it. Opening a
 * session raises the epoch; whatever comes under an older one is refused with STALE_EPOCH in its own transaction.
 * Heartbeats never get here: a node's row is written when something changed.
 */
import type { Database } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';
import { mutate } from '#db/mutate.ts';
import { type GatewayContext, mutationOf } from './context.ts';
import * as sql from './queries.ts';

export type { GatewayContext } from './context.ts';
export { type GatewayLease, renewGatewayLease, takeGatewayLease, yieldGatewayLease } from './gateway-lease.ts';
export { reviewStoredInventory, storeInventorySections } from './inventory.ts';
export { recordEvents, recordObserved, type SpecReport } from './reports.ts';

export interface SessionHello {
  readonly nodeId: string;
  /** Of the client certificate, lower-case hex. */
  readonly serial: string;
  readonly journalId: string;
  readonly bootId: string;
  readonly bcdVersion: string;
  readonly observedGeneration: number;
}

export interface OpenedSession {
  readonly epoch: number;
  readonly specGeneration: number;
  readonly observedGeneration: number;
  readonly sectionHashes: Readonly<Record<string, string>>;
  /** Events of this journal that are stored already. */
  readonly eventsThrough: number;
}

/**
 * Takes the node over from whatever session it had. Throws STALE_EPOCH when this gateway lost its own lease,
 * UNAUTHENTICATED for a certificate that is not in the books or was revoked, JOIN_REFUSED for a retired node.
 */
export function openSession(ctx: GatewayContext, gatewayEpoch: number, hello: SessionHello): Promise<OpenedSession> {
  return mutate(mutationOf(ctx, gatewayEpoch), async (tx) => {
    const certificate = await sql.certificate(tx, hello.serial);
    if (certificate === undefined || certificate.node_id !== hello.nodeId) {
      throw problem('UNAUTHENTICATED', 'the certificate is not in the books; join again');
    }
    if (certificate.revoked) throw problem('UNAUTHENTICATED', 'the certificate was revoked; join again');
    await sql.lockCapacity(tx, [hello.nodeId]);
    const opened = await sql.open(tx, { ...hello, gatewayId: ctx.gatewayId });
    if (opened === undefined) throw problem('JOIN_REFUSED', 'the node was retired');
    if (hello.observedGeneration > opened.observed_generation) {
      await sql.observed(tx, hello.nodeId, opened.epoch, hello.observedGeneration);
    }
    const about = { tenantId: opened.tenant_id, kind: 'node', id: hello.nodeId };
    if (opened.before !== 'connected') {
      await sql.refresh(tx, [hello.nodeId]);
      tx.emit({ ...about, type: 'node.connected', data: { id: hello.nodeId, name: opened.name, epoch: opened.epoch } });
      tx.wake('nodes.health', hello.nodeId);
    }
    if (opened.journal_before !== null && opened.journal_before !== hello.journalId) {
      const data = { id: hello.nodeId, name: opened.name, before: opened.journal_before, now: hello.journalId };
      tx.emit({ ...about, type: 'node.journal_lost', data });
    }
    return {
      epoch: opened.epoch,
      specGeneration: await sql.specGeneration(tx, hello.nodeId),
      observedGeneration: Math.max(opened.observed_generation, hello.observedGeneration),
      sectionHashes: await sql.sectionHashes(tx, hello.nodeId),
      eventsThrough: opened.journal_events,
    };
  });
}

export interface HeldSession {
  readonly nodeId: string;
  readonly epoch: number;
}

const byNode = (a: HeldSession, b: HeldSession) => (a.nodeId < b.nodeId ? -1 : a.nodeId > b.nodeId ? 1 : 0);

/** Sessions whose liveness lease lapsed, or that said goodbye: unreachable, and nothing they hold is released. */
export function closeSessions(ctx: GatewayContext, held: readonly HeldSession[], reason: string): Promise<number> {
  return connectivityBatch(ctx, held, reason, 'node.unreachable', sql.lose);
}

/** Sessions that stand, although the books said otherwise: after the database or this gateway's lease was away. */
export function restoreSessions(ctx: GatewayContext, held: readonly HeldSession[]): Promise<number> {
  return connectivityBatch(ctx, held, 'the session stood all the while', 'node.connected', sql.restore);
}

function connectivityBatch(
  ctx: GatewayContext,
  held: readonly HeldSession[],
  reason: string,
  type: string,
  change: typeof sql.lose,
): Promise<number> {
  const sorted = [...held].sort(byNode);
  return mutate(mutationOf(ctx), async (tx) => {
    const ids = sorted.map((s) => s.nodeId);
    await sql.lockCapacity(tx, ids);
    const changed = await change(
      tx,
      ids,
      sorted.map((s) => s.epoch),
    );
    await sql.refresh(
      tx,
      changed.map((n) => n.id),
    );
    for (const n of changed) {
      tx.emit({ type, tenantId: n.tenant_id, kind: 'node', id: n.id, data: { id: n.id, name: n.name, reason } });
      tx.wake('nodes.health', n.id);
    }
    return changed.length;
  });
}

export type SweepVerdict =
  /** Somebody else holds the node now, or it is retired or gone: end this session. */
  | { readonly nodeId: string; readonly kind: 'fenced' | 'retired' }
  | { readonly nodeId: string; readonly kind: 'restore' }
  /** A newer spec waits. */
  | { readonly nodeId: string; readonly kind: 'deliver'; readonly generation: number };

/** What the books say about the sessions that a gateway holds, where it differs. One read, whatever happened since. */
export async function sweep(
  db: Database,
  held: readonly (HeldSession & { delivered: number })[],
): Promise<SweepVerdict[]> {
  const rows = await sql.differing(
    db,
    held.map((s) => s.nodeId),
    held.map((s) => s.epoch),
    held.map((s) => s.delivered),
  );
  const mine = new Map(held.map((s) => [s.nodeId, s]));
  return rows.flatMap((row): SweepVerdict[] => {
    const session = mine.get(row.id)!;
    if (row.epoch === null || row.state === 'retired') return [{ nodeId: row.id, kind: 'retired' }];
    if (row.epoch !== session.epoch) return [{ nodeId: row.id, kind: 'fenced' }];
    const out: SweepVerdict[] = [];
    if (row.connectivity !== 'connected') out.push({ nodeId: row.id, kind: 'restore' });
    if (row.generation !== null && row.generation > session.delivered) {
      out.push({ nodeId: row.id, kind: 'deliver', generation: row.generation });
    }
    return out;
  });
}

export interface Spec {
  readonly nodeId: string;
  readonly generation: number;
  readonly canonical: string;
  readonly sha256: string;
}

export async function specsOf(db: Database, nodeIds: readonly string[]): Promise<Spec[]> {
  const rows = await sql.specs(db, nodeIds);
  return rows.map((r) => ({
    nodeId: r.node_id,
    generation: r.generation,
    canonical: r.canonical,
    sha256: r.sha256,
  }));
}
