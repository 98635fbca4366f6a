/**
 * The queue loop: reads due rows, runs the reconciler of their kind, stores what it said. It owns the outcomes, the
 * back-off, the deadlines and the bounds, so that no reconciler needs any of them.
 *
 * Invariants: a row leaves the queue only under the generation that was read, so a wake-up during the run is never
 * lost; a row that fails only moves itself back; a run that hangs costs one place for one deadline.
 */
import type { Database } from '#core/kernel/database.ts';
import { isProblem } from '#core/kernel/errors.ts';
import type { Log } from '#core/kernel/log.ts';
import type { Outcome } from '#core/kernel/outcome.ts';
import { addSeconds, type Clock, type Instant, toMillis } from '#core/kernel/time.ts';
import { backOff, due, finish, nextDue, postpone, type WorkItem } from '#db/work-queue.ts';
import type { Reconciler, ReconcilerContext } from './reconciler.ts';
import { sweeper } from './sweep.ts';

export interface RunOptions {
  readonly db: Database;
  readonly reconcilers: readonly Reconciler[];
  /** Which of the queue's shards. */
  readonly shards: readonly number[];
  readonly clock: Clock;
  readonly log: Log;
  /** A number in [0, 1); spreads the back-off. */
  readonly random: () => number;
  /** No new batch is begun after so many milliseconds. */
  readonly budgetMs: number;
  /** Most runs in one call. */
  readonly limit: number;
  /** The lease under which everything is written. */
  readonly fence?: { readonly name: string; readonly epoch: number };
  readonly poke?: ReconcilerContext['poke'];
  /** Rows at once. 4 unless said; 1 makes the order of runs exact, which the simulator wants. */
  readonly parallel?: number;
}

export interface RunReport {
  readonly ran: number;
  readonly failed: number;
  /** 0 when more is due already; undefined when nothing waits. */
  readonly nextDueMs: number | undefined;
  /** The lease has a newer owner: nothing more may be done under it. */
  readonly fenced: boolean;
}

/** A reconciler that keeps finding something to do gives way to the others after so many steps. */
const STEPS_MAX = 8;
const BATCH = 16;
const DEADLINE_SECONDS = 20;
const DOUBTFUL_RECHECK_SECONDS = 60;

interface BatchTime extends Record<string, unknown> {
  readonly now: Instant;
  /** The clock jumped, and deadlines do not go by it. */
  readonly doubtful: boolean;
}

class Fenced extends Error {}

export async function runDue(o: RunOptions): Promise<RunReport> {
  const serving = [...o.reconcilers, sweeper(o.reconcilers)];
  const byKind = new Map(serving.map((r) => [r.kind, r]));
  const kinds = [...byKind.keys()];
  const until = o.clock.now() + o.budgetMs;
  let ran = 0;
  let failed = 0;
  let fenced = false;

  while (ran < o.limit && !fenced && o.clock.now() < until) {
    const items = await due(o.db, o.shards, kinds, Math.min(BATCH, o.limit - ran));
    if (items.length === 0) break;
    const [time] = await o.db.query<BatchTime>('select compute_now() as now, compute_now() > steady_now() as doubtful');
    const waiting = [...items];
    const work = async () => {
      for (let item = waiting.shift(); item !== undefined && !fenced; item = waiting.shift()) {
        ran++;
        try {
          if (!(await visit(o, byKind.get(item.kind)!, item, time!))) failed++;
        } catch (e) {
          failed++;
          if (e instanceof Fenced) fenced = true;
          // The outcome could not be stored; the row is still due and will be read again.
          else o.log.warn({ kind: item.kind, key: item.key, err: textOf(e) }, 'outcome not stored');
        }
      }
    };
    await Promise.all(Array.from({ length: o.parallel ?? 4 }, work));
  }
  if (fenced) return { ran, failed, nextDueMs: undefined, fenced };
  return { ran, failed, nextDueMs: (await nextDue(o.db, o.shards, kinds))?.dueInMs, fenced };
}

/**
 * While deadlines do not go by the clock, the clock may say of every one of them that it has passed: who waits for one
 * would be due again at once, for as long as that lasts.
 */
function recheckAt(asked: Instant, { now, doubtful }: BatchTime): Instant {
  if (!doubtful) return asked;
  const earliest = addSeconds(now, DOUBTFUL_RECHECK_SECONDS);
  return toMillis(asked) < toMillis(earliest) ? earliest : asked;
}

/** Runs one row and stores its outcome. False when the run failed. */
async function visit(o: RunOptions, reconciler: Reconciler, item: WorkItem, time: BatchTime): Promise<boolean> {
  const { now } = time;
  let outcome: Outcome;
  try {
    outcome = await steps(o, reconciler, item, now);
  } catch (e) {
    if (await isFenced(o, e)) throw new Fenced();
    o.log.warn({ kind: item.kind, key: item.key, attempts: item.attempts + 1, err: textOf(e) }, 'reconciler failed');
    await backOff(o.db, item, textOf(e), o.random());
    return false;
  }
  if (outcome.kind === 'wait') await postpone(o.db, item, outcome.reason, recheckAt(outcome.recheckAt, time));
  // Behind everything that is due already, so that a row with endless work cannot keep the others waiting.
  else if (outcome.kind === 'again') await postpone(o.db, item, outcome.did, now);
  else await finish(o.db, item);
  return true;
}

async function steps(o: RunOptions, reconciler: Reconciler, item: WorkItem, now: Instant): Promise<Outcome> {
  const deadlineSeconds = reconciler.deadlineSeconds ?? DEADLINE_SECONDS;
  const late = new AbortController();
  const done = new AbortController();
  const ctx: ReconcilerContext = {
    db: o.db,
    actor: item.kind,
    admission: { system: item.kind },
    now,
    log: o.log,
    signal: late.signal,
    ...(o.fence === undefined ? {} : { fence: o.fence }),
    ...(o.poke === undefined ? {} : { poke: o.poke }),
  };
  const overdue = new Error(`took longer than ${deadlineSeconds} s`);
  const timer = o.clock.sleep(deadlineSeconds * 1000, done.signal).then(() => {
    late.abort(overdue);
    throw overdue;
  });
  const run = async () => {
    for (let step = 1; ; step++) {
      const outcome = await reconciler.run(ctx, item.key);
      if (outcome.kind !== 'again' || step === STEPS_MAX || late.signal.aborted) return outcome;
    }
  };
  try {
    return await Promise.race([run(), timer]);
  } finally {
    timer.catch(() => {});
    done.abort();
  }
}

/** Whether a refusal came from the lease under which we write, and not from some other epoch. */
async function isFenced(o: RunOptions, e: unknown): Promise<boolean> {
  if (o.fence === undefined || !isProblem(e) || e.code !== 'STALE_EPOCH') return false;
  const rows = await o.db.query('select 1 from leases where name = $1 and epoch = $2', [o.fence.name, o.fence.epoch]);
  return rows.length === 0;
}

/** For the operator: the typed text, and what was underneath. */
function textOf(e: unknown): string {
  if (!(e instanceof Error)) return String(e);
  const cause = e.cause instanceof Error ? ` (${e.cause.message})` : '';
  return `${e.name}: ${e.message}${cause}`;
}
