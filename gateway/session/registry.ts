/**
 * The sessions of this gateway, one a node, and the lease timers. A stream that ended without a word keeps the rest of
 * its lease: machines that reconnect within it were never unreachable.
 */
import type { Session } from './session.ts';

export interface Lapsed {
  readonly nodeId: string;
  readonly epoch: number;
  readonly reason: string;
}

interface Departed {
  readonly epoch: number;
  readonly untilMs: number;
  readonly reason: string;
}

export class Registry {
  private readonly sessions = new Map<string, Session>();
  private readonly departed = new Map<string, Departed>();
  private readonly leaseMs: number;

  constructor(leaseMs: number) {
    this.leaseMs = leaseMs;
  }

  get size(): number {
    return this.sessions.size;
  }
  get(nodeId: string): Session | undefined {
    return this.sessions.get(nodeId);
  }
  all(): Session[] {
    return [...this.sessions.values()];
  }

  /** Answers the older session of the node, which is to be ended. */
  add(session: Session): Session | undefined {
    const older = this.sessions.get(session.nodeId);
    // Two openings of one node may come back from the database in the other order.
    if (older !== undefined && older.epoch > session.epoch) return session;
    this.sessions.set(session.nodeId, session);
    this.departed.delete(session.nodeId);
    return older;
  }

  /** The stream is over. */
  remove(session: Session, nowMs: number): void {
    if (this.sessions.get(session.nodeId) !== session) return;
    this.sessions.delete(session.nodeId);
    this.departed.set(session.nodeId, {
      epoch: session.epoch,
      untilMs: session.left ? nowMs : session.lastHeardMs + this.leaseMs,
      reason: session.left ? 'the daemon stopped' : 'the session ended and did not come back within its lease',
    });
  }

  /** Somebody else owns the node now; it is not ours to call it unreachable. */
  forget(session: Session): void {
    if (this.sessions.get(session.nodeId) === session) this.sessions.delete(session.nodeId);
    this.departed.delete(session.nodeId);
  }

  /** Open sessions that were silent for longer than their lease. */
  silent(nowMs: number): Session[] {
    return this.all().filter((s) => !s.behind && s.lastHeardMs + this.leaseMs <= nowMs);
  }

  /** Nodes to be called unreachable. They stay in this answer until `settle`, since the database may be away. */
  lapsed(nowMs: number): Lapsed[] {
    return [...this.departed]
      .filter(([, d]) => d.untilMs <= nowMs)
      .map(([nodeId, d]) => ({ nodeId, epoch: d.epoch, reason: d.reason }));
  }

  settle(lapsed: readonly Lapsed[]): void {
    for (const l of lapsed) if (this.departed.get(l.nodeId)?.epoch === l.epoch) this.departed.delete(l.nodeId);
  }

  /** This process stood still for so long: nobody could be heard meanwhile, so nobody was silent. */
  forgive(ms: number): void {
    for (const s of this.sessions.values()) s.lastHeardMs += ms;
    for (const [id, d] of this.departed) this.departed.set(id, { ...d, untilMs: d.untilMs + ms });
  }
}
