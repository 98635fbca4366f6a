/** The books checked by other means than the code that keeps them. Each answer is a list of what is wrong. */
import type { Database } from '#core/kernel/database.ts';

const CHECKS = {
  'a device has two live bookings that overlap': `
    select a.device_no::text as what from device_bookings a join device_bookings b
      on a.device_no = b.device_no and a.allocation_id < b.allocation_id and a.during && b.during
    where a.released_at is null and b.released_at is null`,
  'a device held by an allocation has no live booking of it, or the reverse': `
    select coalesce(d.id, b.device_no::text) as what from devices d full join
      (select b.* from device_bookings b join allocations a on a.id = b.allocation_id
        where b.released_at is null and a.held_at is not null) b on b.device_no = d.no and b.allocation_id = d.allocation_id
    where (d.allocation_id is not null and b.device_no is null) or (b.device_no is not null and d.id is null)`,
  'the claims of a device differ from the bookings of it that have not begun': `
    select d.id as what from devices d left join (
      select b.device_no, count(*) as n from device_bookings b join allocations a on a.id = b.allocation_id
      where b.released_at is null and a.held_at is null group by 1) c on c.device_no = d.no
    where d.claims <> coalesce(c.n, 0)`,
  'quota in use differs from what is held': `
    select q.tenant_id || '/' || q.resource as what from quotas q left join (
      select a.tenant_id, a.pool_id, d.class, count(*) as n from device_bookings b
        join allocations a on a.id = b.allocation_id join devices d on d.no = b.device_no
      where b.released_at is null group by 1, 2, 3) h
      on h.tenant_id = q.tenant_id and h.pool_id = q.pool_id and h.class = q.resource
    where q.used <> coalesce(h.n, 0)`,
  'quota in use above its limit': `
    select tenant_id || '/' || resource as what from quotas where used > limit_count`,
  'a capacity summary differs from its devices': `
    select c.node_id || '/' || c.class as what from node_capacity c join (
      select node_id, class, count(*) filter (where allocation_id is not null) as held,
        count(*) filter (where bookable and present and health = 'healthy' and allocation_id is null and claims = 0) as free,
        count(*) filter (where bookable and present and health = 'healthy' and allocation_id is null and claims > 0) as claimed
      from devices group by 1, 2) d on d.node_id = c.node_id and d.class = c.class
    where c.allocated <> d.held or c.free <> d.free or c.claimed <> d.claimed`,
  'a live allocation of a reservation that is over, or none for one that is not': `
    select r.id as what from reservations r where
      (r.state in ('released', 'abandoned', 'draft') and exists (select 1 from allocations a where a.reservation_id = r.id and a.released_at is null))
      or (r.state in ('scheduled', 'booked', 'active') and not exists (select 1 from allocations a where a.reservation_id = r.id and a.released_at is null))`,
  'a booking without its event, or an event without its booking': `
    select coalesce(h.subject_id, e.subject_id) as what from
      (select subject_id from state_history where machine = 'reservation' and event in ('admit', 'begin')) h
      full join (select subject_id from events where type = 'reservation.booked') e on e.subject_id = h.subject_id
    where h.subject_id is null or e.subject_id is null`,
  'metered seconds differ from the integral of the holding': `
    select a.id as what from allocations a join lateral (
      select count(*) as n from (select 1 from device_bookings b where b.allocation_id = a.id
        union all select 1 from booking_history h where h.allocation_id = a.id) x) held on true
    left join (select allocation_id, sum(device_seconds) as s from usage_windows group by 1) u on u.allocation_id = a.id
    where a.released_at is not null and a.active_at is not null and coalesce(u.s, 0) <>
      held.n * greatest(0, floor(extract(epoch from a.ended_at)) - floor(extract(epoch from a.active_at)))`,
} as const;

/** `check: id` for everything that is wrong; empty when the books are in order. `usage` once nothing is due any more. */
export async function bookErrors(db: Database, o: { usage?: boolean } = {}): Promise<string[]> {
  const wrong: string[] = [];
  // One snapshot for each check: the books are compared with themselves, not with a moment ago.
  for (const [name, text] of Object.entries(CHECKS)) {
    if (name.startsWith('metered') && o.usage !== true) continue;
    for (const row of await db.query<{ what: string }>(text)) wrong.push(`${name}: ${row.what}`);
  }
  if (await refereeBlind(db)) wrong.push('the constraint does not see every live booking');
  return wrong;
}

/** Whether the index of the constraint lacks live rows: what it does not hold, it does not refuse. */
export async function refereeBlind(db: Database, table = 'device_bookings'): Promise<boolean> {
  const count = async (off: readonly string[], where: string) =>
    db.transaction(async (tx) => {
      for (const setting of off) await tx.query(`set local ${setting} = off`);
      const [row] = await tx.query<{ n: number; at: string }>(
        `select count(*)::int as n, pg_snapshot_xmin(pg_current_snapshot())::text as at from ${table}
         where released_at is null and ${where}`,
      );
      return row!;
    });
  // Compared only where nothing was committed in between.
  const rows = await count(['enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan'], 'true');
  const seen = await count(['enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan'], `during && '(,)'`);
  const again = await count(['enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan'], 'true');
  return rows.n === again.n && rows.at === again.at && seen.n !== rows.n;
}
