/**
 * Moving what is over out of the way, in bounded batches, so that the hot tables stay as small as what is live. Age goes by
 * the steady time: a clock that jumps makes nothing old.
 */
import type { Database } from '#core/kernel/database.ts';
import { read } from '#db/mutate.ts';

const BATCH = 2000;

/** How long the past is kept where nothing else says so. */
export const RETENTION = {
  idempotencyKeysDays: 7,
  eventsDays: 90,
  deliveriesDays: 30,
} as const;

async function count(db: Database, text: string, params: readonly (string | number)[]): Promise<number> {
  const [row] = await read<{ n: number }>(db, text, params);
  return row!.n;
}

/** One batch of each chore. Answers how many rows moved; a full batch means there is more. */
export async function tidy(
  db: Database,
): Promise<{ bookings: number; keys: number; events: number; deliveries: number; full: boolean }> {
  const bookings = await count(
    db,
    `with over as (
       delete from device_bookings where ctid = any (array(
         select ctid from device_bookings where released_at < steady_now() - interval '1 minute' limit $1))
       returning device_no, allocation_id, during, released_at),
     kept as (insert into booking_history select device_no, allocation_id, during, released_at from over returning 1)
     select count(*) as n from kept`,
    [BATCH],
  );
  const keys = await count(
    db,
    `with over as (
       delete from idempotency_keys where ctid = any (array(
         select ctid from idempotency_keys where created_at < steady_now() - make_interval(days => $2) limit $1))
       returning 1)
     select count(*) as n from over`,
    [BATCH, RETENTION.idempotencyKeysDays],
  );
  const events = await count(
    db,
    `with over as (
       delete from events where ctid = any (array(
         select e.ctid from (select ctid, id, at from events order by xid, seq limit $1) e
         where e.at < steady_now() - make_interval(days => $2)
           and not exists (select 1 from webhook_deliveries d where d.event_id = e.id and d.state = 'pending')))
       returning 1)
     select count(*) as n from over`,
    [BATCH, RETENTION.eventsDays],
  );
  // Ids sort by their time, so the oldest stand first; what is still pending among them settles within days.
  const deliveries = await count(
    db,
    `with over as (
       delete from webhook_deliveries where ctid = any (array(
         select d.ctid from (select ctid, state, state_changed_at from webhook_deliveries order by id limit $1) d
         where d.state <> 'pending' and d.state_changed_at < steady_now() - make_interval(days => $2)))
       returning 1)
     select count(*) as n from over`,
    [BATCH, RETENTION.deliveriesDays],
  );
  return { bookings, keys, events, deliveries, full: Math.max(bookings, keys, events, deliveries) === BATCH };
}
