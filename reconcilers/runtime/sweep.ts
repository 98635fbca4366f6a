/**
 * Sweeps as queue rows: `sweep/<kind>` is an ordinary row of the work queue that always waits for its next turn. So
 * whichever shard owns the row sweeps, once a period for the whole fleet of hosts, and a restart forgets nothing.
 */
import type { Database } from '#core/kernel/database.ts';
import { gone, wait } from '#core/kernel/outcome.ts';
import { addSeconds } from '#core/kernel/time.ts';
import { enlist } from '#db/work-queue.ts';
import type { Reconciler } from './reconciler.ts';

export const SWEEP_KIND = 'sweep';

/** The reconciler behind the `sweep` rows. */
export function sweeper(reconcilers: readonly Reconciler[]): Reconciler {
  return {
    kind: SWEEP_KIND,
    run: async (ctx, key) => {
      const swept = reconcilers.find((r) => r.kind === key);
      if (swept?.sweep === undefined) return gone;
      const keys = await swept.sweep.keys({ ...ctx, actor: swept.kind, admission: { system: swept.kind } });
      if (keys.length > 0) await enlist(ctx.db, swept.kind, keys);
      const { everySeconds } = swept.sweep;
      return wait(`swept ${keys.length}; again in ${everySeconds} s`, addSeconds(ctx.now, everySeconds));
    },
  };
}

/** Puts the sweeps into the queue, where they are not yet. Cheap enough for every start and every cron tick. */
export async function ensureSweeps(db: Database, reconcilers: readonly Reconciler[]): Promise<void> {
  const kinds = reconcilers.filter((r) => r.sweep !== undefined).map((r) => r.kind);
  if (kinds.length > 0) await enlist(db, SWEEP_KIND, kinds);
}
