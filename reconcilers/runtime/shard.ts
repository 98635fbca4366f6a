/**
 * One shard's turn, whoever hosts it: look at the clock, take or renew the lease `shard:<n>`, drain what is due under its epoch, say when
 * to come again. The Durable Object and the Node host both run exactly this.
 *
 * Invariant: nothing is written without the fence. Losing the lease in the middle ends the turn; the next turn asks
 * for it again and works under a new epoch, or finds a newer owner and waits.
 */
import { ROOT } from '#core/iam/root.ts';
import { acquireLease, type HeldLease, releaseLease } from '#db/leases.ts';
import { SHARDS } from '#db/work-queue.ts';
import { type ClockSettings, watchClock } from '#services/clock/index.ts';
import { type RunOptions, type RunReport, runDue } from './engine.ts';

/** Hosts that the queue's shards are spread over. */
export const SHARD_OBJECTS = 4;
export const SHARD_LEASE_SECONDS = 30;
/** A lost poke costs at most this. */
export const SWEEP_MS = 30_000;
/** Well below both the lease and the 30 s that a host gives one alarm. */
const TURN_MS = 10_000;
const TURN_RUNS = 500;
/** More is due than one turn does: the next begins after this pause, so that others get the database too. */
const PAUSE_MS = 20;

export function shardLease(n: number): string {
  return `shard:${n}`;
}

/** The queue's shards that host `n` serves. */
export function queueShardsOf(n: number): number[] {
  const each = SHARDS / SHARD_OBJECTS;
  return Array.from({ length: each }, (_, i) => n * each + i);
}

export interface TurnOptions extends Omit<RunOptions, 'shards' | 'budgetMs' | 'limit' | 'fence'> {
  readonly n: number;
  /** Names this instance of the host; a new instance takes a new name. */
  readonly holder: string;
  /** Whom jumps of the clock are told to, where it is not the embedded root tenant; what counts as a jump. */
  readonly watch?: { readonly tenant?: string; readonly settings?: ClockSettings };
  readonly budgetMs?: number;
  readonly limit?: number;
}

export interface Turn extends Omit<RunReport, 'nextDueMs'> {
  /** Undefined when somebody else has the shard. */
  readonly lease: HeldLease | undefined;
  /** Come again after so many milliseconds, at the latest. */
  readonly nextMs: number;
}

export async function shardTurn(o: TurnOptions): Promise<Turn> {
  // Before anything else: a lease that a clock ahead of its time gave would keep the shard for as long as it was ahead.
  await watchClock(o.db, o.log, o.watch?.tenant ?? ROOT, o.watch?.settings);
  const lease = await acquireLease(o.db, shardLease(o.n), o.holder, SHARD_LEASE_SECONDS);
  if (lease === undefined) return { lease, ran: 0, failed: 0, fenced: false, nextMs: 5_000 };
  const report = await runDue({
    ...o,
    shards: queueShardsOf(o.n),
    budgetMs: o.budgetMs ?? TURN_MS,
    limit: o.limit ?? TURN_RUNS,
    fence: { name: lease.name, epoch: lease.epoch },
  });
  const { ran, failed, fenced, nextDueMs } = report;
  if (fenced) return { lease: undefined, ran, failed, fenced, nextMs: 5_000 };
  return { lease, ran, failed, fenced, nextMs: Math.min(SWEEP_MS, Math.max(PAUSE_MS, nextDueMs ?? SWEEP_MS)) };
}

/**
 * Ends what an earlier instance of the same host held, so that this one need not wait for the lease to run out. The
 * next acquisition raises the epoch, and whatever the earlier instance still has in flight is refused.
 */
export async function takeOver(o: Pick<TurnOptions, 'db'>, earlier: HeldLease): Promise<void> {
  await releaseLease(o.db, earlier);
}
