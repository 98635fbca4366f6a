/**
 * The consumer's side of the work queue. `claim` reads due rows, `finish` deletes a row only when nobody woke it since
 * it was read, so that a wake-up during the run is never lost.
 */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';

export interface WorkItem {
  readonly kind: string;
  readonly key: string;
  readonly generation: number;
  readonly attempts: number;
}

/** Shards that the queue is cut into; a row's shard is a hash of kind and key (SQL `shard_of`). */
export const SHARDS = 16;
const BACKOFF_SECONDS_MAX = 300;

/** Due rows of a shard, oldest first, and the database's time. */
export async function due(
  db: Sql,
  shards: readonly number[],
  kinds: readonly string[],
  limit: number,
): Promise<WorkItem[]> {
  return db.query<WorkItem & Record<string, unknown>>(
    `select kind, key, generation, attempts from work_queue
     where shard = any($1::int[]) and not_before <= compute_now() and kind = any($2::text[])
     order by not_before, kind, key limit $3`,
    [shards, kinds, limit],
  );
}

/** When the next row of these kinds in these shards falls due; undefined when none waits. */
export async function nextDue(
  db: Sql,
  shards: readonly number[],
  kinds: readonly string[],
): Promise<{ dueInMs: number } | undefined> {
  const [row] = await db.query<{ ms: number | null }>(
    `select ceil(extract(epoch from min(not_before) - compute_now()) * 1000)::bigint as ms
     from work_queue where shard = any($1::int[]) and kind = any($2::text[])`,
    [shards, kinds],
  );
  return row?.ms == null ? undefined : { dueInMs: Math.max(0, Number(row.ms)) };
}

/** Queues the keys that do not wait already. Unlike a wake-up it leaves a row's back-off and recheck time alone. */
export async function enlist(db: Sql, kind: string, keys: readonly string[]): Promise<void> {
  await db.query(
    `insert into work_queue (kind, key, shard)
     select $1, k, shard_of($1, k) from unnest($2::text[]) k group by k order by k on conflict do nothing`,
    [kind, keys],
  );
}

/** Nothing more to do for this generation. A row that was woken since stays, due at once. */
export async function finish(db: Sql, item: WorkItem): Promise<void> {
  await db.query('delete from work_queue where kind = $1 and key = $2 and generation = $3', [
    item.kind,
    item.key,
    item.generation,
  ]);
}

/** Look again at `recheckAt`, or earlier if woken since. */
export async function postpone(db: Sql, item: WorkItem, reason: string, recheckAt: Instant): Promise<void> {
  await db.query(
    `update work_queue set not_before = $4, reason = $5, attempts = 0, last_error = null
     where kind = $1 and key = $2 and generation = $3`,
    [item.kind, item.key, item.generation, recheckAt, reason],
  );
}

/** It threw: back off with full jitter, doubling up to five minutes. `roll` is a number in [0, 1). */
export async function backOff(db: Sql, item: WorkItem, error: string, roll: number): Promise<void> {
  const ceiling = Math.min(BACKOFF_SECONDS_MAX, 2 ** Math.min(item.attempts, 10));
  await db.query(
    `update work_queue set attempts = attempts + 1, last_error = $4, reason = 'failed, will try again',
       not_before = compute_now() + make_interval(secs => $5)
     where kind = $1 and key = $2 and generation = $3`,
    [item.kind, item.key, item.generation, error.slice(0, 2000), Math.max(0.2, ceiling * roll)],
  );
}
