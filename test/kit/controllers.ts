/** The reconcilers in a test's own hands: nothing moves until the test says so, and then until nothing is due. */
import type { Database } from '#core/kernel/database.ts';
import type { Log } from '#core/kernel/log.ts';
import { systemClock } from '#core/kernel/time.ts';
import { SHARDS } from '#db/work-queue.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { runDue } from '#reconcilers/runtime/engine.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';

/** A reconciler that fails shows up in the test's output. */
const loud: Log = {
  debug: () => {},
  info: () => {},
  warn: (fields, message) => console.error(message, fields),
  error: (fields, message) => console.error(message, fields),
};

export interface Controllers {
  /** Runs what is due, sweeps included, until nothing is due at this instant. Throws when a run failed. */
  settle(): Promise<void>;
}

export function controllers(db: Database): Controllers {
  const shards = Array.from({ length: SHARDS }, (_, i) => i);
  return {
    async settle() {
      await ensureSweeps(db, RECONCILERS);
      for (;;) {
        const report = await runDue({
          db,
          reconcilers: RECONCILERS,
          shards,
          clock: systemClock,
          log: loud,
          random: () => 0.5,
          budgetMs: 20_000,
          limit: 2000,
        });
        if (report.failed > 0) throw new Error(`${report.failed} of ${report.ran} runs failed`);
        if (report.nextDueMs !== 0) return;
      }
    },
  };
}
