/** Writing usage windows: what an allocation held, hour by hour. Writing the same twice changes nothing. */
import type { Instant } from '#core/kernel/time.ts';
import { meterOf, nextReading, usageWindows } from '#core/usage/windows.ts';
import { type MutationContext, mutate } from '#db/mutate.ts';

interface MeteredRow extends Record<string, unknown> {
  readonly reservation_id: string;
  readonly tenant_id: string;
  readonly pool_id: string;
  readonly gpu_model: string | null;
  readonly spot: boolean;
  readonly active_at: Instant | null;
  readonly ended_at: Instant | null;
  /** What deadlines go by. */
  readonly now: Instant;
  /** Now, or the end of its time, also where nobody has noticed it yet: a sealed hour is never corrected. */
  readonly until: Instant;
  readonly devices: Readonly<Record<string, number>> | null;
}

/** `over`: nothing will be added. `next`: when to read again; undefined while no machine has confirmed the allocation. */
export type Metered = { readonly over: true } | { readonly over: false; readonly next: Instant | undefined };

/** Brings the windows of an allocation up to date. Undefined: no such allocation. */
export function meter(ctx: MutationContext, allocationId: string): Promise<Metered | undefined> {
  return mutate(ctx, async (tx) => {
    const [a] = await tx.query<MeteredRow>(
      `select a.reservation_id, a.tenant_id, a.pool_id, p.gpu_model, r.spot, a.active_at, a.ended_at,
         steady_now() as now, least(steady_now(), r.ends_at) as until,
         (select jsonb_object_agg(class, n) from (
            select d.class, count(*) as n from (
              select device_no from device_bookings where allocation_id = a.id
              union all select device_no from booking_history where allocation_id = a.id) b
            join devices d on d.no = b.device_no group by d.class) held) as devices
       from allocations a join pools p on p.id = a.pool_id join reservations r on r.id = a.reservation_id
       where a.id = $1 for update of a`,
      [allocationId],
    );
    if (a === undefined) return undefined;
    const ended = a.ended_at !== null;
    // Never confirmed by the machine, never usable: nothing to pay for.
    if (a.active_at === null) return ended ? { over: true } : { over: false, next: undefined };
    const devices = Object.fromEntries(
      Object.entries(a.devices ?? {}).map(([c, n]) => [meterOf(c, a.gpu_model ?? undefined, a.spot), n]),
    );
    const windows = usageWindows({ from: a.active_at, to: a.ended_at ?? a.until, ended, devices });
    await tx.query(
      `insert into usage_windows as w (allocation_id, hour, meter, reservation_id, tenant_id, pool_id, device_seconds, sealed)
       select $1, u.hour, u.meter, $2, $3, $4, u.seconds, u.sealed
       from jsonb_to_recordset($5::jsonb) as u (hour timestamptz, meter text, seconds bigint, sealed boolean)
       on conflict (allocation_id, hour, meter) do update set device_seconds = excluded.device_seconds,
         sealed = excluded.sealed, updated_at = compute_now()
       where not w.sealed and (w.device_seconds, w.sealed) is distinct from (excluded.device_seconds, excluded.sealed)`,
      [
        allocationId,
        a.reservation_id,
        a.tenant_id,
        a.pool_id,
        JSON.stringify(
          windows.map((w) => ({ hour: w.hour, meter: w.meter, seconds: w.deviceSeconds, sealed: w.sealed })),
        ),
      ],
    );
    return ended ? { over: true } : { over: false, next: nextReading(a.active_at, a.now) };
  });
}
