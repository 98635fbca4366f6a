/**
 * Puts due deliveries into the queue. The rows are the truth and a message is only a hint: one that is lost leaves a
 * row that falls due again a minute later.
 */
import type { Database } from '#core/kernel/database.ts';
import { type DueDelivery, nextDueMs, takeDue } from '#services/webhooks/index.ts';

/** The most that one batch may carry. */
const BATCH = 100;
/** In one sweep; the rest follows at the next, which comes at once. */
const BATCHES_MAX = 10;

/** Answers in how many milliseconds the next delivery falls due; undefined when none waits. */
export async function enqueueDue(db: Database, queue: Queue<DueDelivery>): Promise<number | undefined> {
  for (let i = 0; i < BATCHES_MAX; i++) {
    const due = await takeDue(db, BATCH);
    if (due.length > 0) await queue.sendBatch(due.map((body) => ({ body })));
    if (due.length < BATCH) break;
  }
  return nextDueMs(db);
}
