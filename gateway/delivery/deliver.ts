/**
 * Brings the sessions in line with the books: every two seconds all of them, and at once those that a hint named. One
 * read says which sessions are fenced, retired, wrongly called unreachable, or behind on their spec. Level-triggered:
 * whatever was missed in between is in the next answer.
 */
import type { Clock } from '#core/kernel/time.ts';
import { type GatewayContext, restoreSessions, type SweepVerdict, specsOf, sweep } from '#services/sessions/index.ts';
import type { PausedListener } from '../session/listener.ts';
import type { Registry } from '../session/registry.ts';
import type { Session } from '../session/session.ts';

export interface DeliveryDeps {
  readonly clock: Clock;
  readonly registry: Registry;
  readonly listener: PausedListener;
  readonly books: GatewayContext;
  readonly onError: (e: unknown) => void;
  readonly onSwept: () => void;
  readonly signal: AbortSignal;
}

const PERIOD_MS = 2_000;
/** Hints that come together are answered together. */
const GATHER_MS = 10;
const CHUNK = 1_000;
/** A peer that does not take its frames gets no more of them. */
const BACKLOG_MAX = 64;
const GOODBYE_MS = 2_000;

export class Delivery {
  readonly counters = { delivered: 0, fenced: 0, restored: 0 };
  private readonly deps: DeliveryDeps;
  private hinted = new Set<string>();
  private gathering = false;

  constructor(deps: DeliveryDeps) {
    this.deps = deps;
  }

  /** Runs until the signal. */
  async run(): Promise<void> {
    const { clock, signal, registry, onError, onSwept } = this.deps;
    while (!signal.aborted) {
      try {
        const all = registry.all();
        for (let i = 0; i < all.length; i += CHUNK) await this.settle(all.slice(i, i + CHUNK));
        onSwept();
      } catch (e) {
        onError(e);
      }
      await clock.sleep(PERIOD_MS, signal).catch(() => {});
    }
  }

  /** Looks at this node's session soon. */
  hint(nodeId: string): void {
    const { registry, clock, onError } = this.deps;
    if (registry.get(nodeId) === undefined) return;
    this.hinted.add(nodeId);
    if (this.gathering) return;
    this.gathering = true;
    void clock
      .sleep(GATHER_MS)
      .then(() => {
        const ids = this.hinted;
        this.hinted = new Set();
        this.gathering = false;
        return this.settle([...ids].flatMap((id) => registry.get(id) ?? []));
      })
      .catch(onError);
  }

  private async settle(sessions: readonly Session[]): Promise<void> {
    if (sessions.length === 0) return;
    const { books } = this.deps;
    const held = sessions.map(({ nodeId, epoch, delivered }) => ({ nodeId, epoch, delivered }));
    const verdicts = await sweep(books.db, held);
    const byNode = new Map(sessions.map((s) => [s.nodeId, s]));
    const of = (kind: SweepVerdict['kind']) =>
      verdicts.filter((v) => v.kind === kind).flatMap((v) => byNode.get(v.nodeId) ?? []);
    for (const session of of('fenced')) this.cut(session, 'fenced', 'another session has taken this node over');
    for (const session of of('retired')) this.cut(session, 'retired', 'the node was retired');
    const restore = of('restore').filter((s) => !s.ended);
    if (restore.length > 0) this.counters.restored += await restoreSessions(books, restore);
    const behind = of('deliver').filter((s) => !s.ended && s.backlog < BACKLOG_MAX);
    if (behind.length === 0) return;
    for (const spec of await specsOf(
      books.db,
      behind.map((s) => s.nodeId),
    )) {
      const session = byNode.get(spec.nodeId)!;
      if (spec.generation <= session.delivered) continue;
      const { generation, canonical, sha256 } = spec;
      const value = { generation: BigInt(generation), canonical: new TextEncoder().encode(canonical), sha256 };
      if (!session.send({ case: 'spec', value })) continue;
      session.delivered = generation;
      this.counters.delivered++;
    }
  }

  private cut(session: Session, reason: 'fenced' | 'retired', message: string): void {
    const { registry, listener, clock } = this.deps;
    this.counters.fenced++;
    registry.forget(session);
    session.end(reason, message);
    void clock.sleep(GOODBYE_MS).then(() => listener.destroy(session.peer));
  }
}
