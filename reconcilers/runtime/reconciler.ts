/**
 * What a reconciler is: a plain function over a context that reads the world, does at most one bounded thing about it
 * and says what it found. It is given a key and no news: what changed, it reads itself, so that a wake-up, a sweep and
 * a restart all take the same path.
 *
 * Invariants: safe to run twice at once and at any point of a half-done change; every write goes through mutate(),
 * which refuses it once the shard has a newer owner.
 */

import type { Log } from '#core/kernel/log.ts';
import type { Outcome } from '#core/kernel/outcome.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { MutationContext } from '#db/mutate.ts';

export interface ReconcilerContext extends MutationContext {
  /** The database's time when this batch was read. */
  readonly now: Instant;
  readonly log: Log;
  /** Aborts at the run's deadline. */
  readonly signal: AbortSignal;
}

export interface Reconciler {
  /** The kind of the work-queue rows it serves, and its name as an actor in histories and audit records. */
  readonly kind: string;
  run(ctx: ReconcilerContext, key: string): Promise<Outcome>;
  /** For what no commit wakes: the keys worth a look, listed again every so many seconds. At most 1,000 a call. */
  readonly sweep?: {
    readonly everySeconds: number;
    keys(ctx: ReconcilerContext): Promise<readonly string[]>;
  };
  /** A run that takes longer counts as failed. 20 unless said. */
  readonly deadlineSeconds?: number;
}

/** The frame of a reconciler's writes: its own name in history and audit, the shard's fence on every commit. */
export function mutationFor(ctx: ReconcilerContext, kind: string): MutationContext {
  const { db, fence, poke } = ctx;
  return {
    db,
    actor: kind,
    admission: { system: kind },
    ...(fence === undefined ? {} : { fence }),
    ...(poke === undefined ? {} : { poke }),
  };
}
