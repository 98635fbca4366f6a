/** The reconcilers in a test's own hands: nothing moves until the test says so, and then until nothing is due. */
import type { Database } from '#core/kernel/database.ts';
import type { Log } from '#core/kernel/log.ts';
import { systemClock } from '#core/kernel/time.ts';
import { SHARDS } from '#db/work-queue.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { runDue } from '#reconcilers/runtime/engine.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';

export interface Controllers {
  /** Runs what is due, sweeps included, until nothing is due at this instant. Throws what a run threw. */
  settle(): Promise<void>;
}

export function controllers(db: Database): Controllers {
  const shards = Array.from({ length: SHARDS }, (_, i) => i);
  return {
    async settle() {
      const failures: string[] = [];
      const note: Log['warn'] = (fields, message) => void failures.push(`${message}: ${JSON.stringify(fields)}`);
      await ensureSweeps(db, RECONCILERS);
      for (;;) {
        const report = await runDue({
          db,
          reconcilers: RECONCILERS,
          shards,
          clock: systemClock,
          log: { debug() {}, info() {}, warn: note, error: note },
          random: () => 0.5,
          budgetMs: 20_000,
          limit: 2000,
        });
        if (report.failed > 0) throw new Error(failures.join('\n'));
        if (report.nextDueMs !== 0) return;
      }
    },
  };
}
