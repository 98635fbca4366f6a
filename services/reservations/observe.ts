/** What is seen of a reservation, and what the plan says about it: for the reconciler that acts and for who asks why. */
import type { Sql } from '#core/kernel/database.ts';
import { planReservation, type ReservationStep } from '#core/reservations/plan.ts';
import * as sql from './queries.ts';

export async function observe(
  db: Sql,
  id: string,
): Promise<{ row: sql.ObservedRow; step: ReservationStep } | undefined> {
  const row = await sql.observe(db, id);
  if (row === undefined) return undefined;
  const step = planReservation(
    {
      state: row.state,
      createdAt: row.created_at,
      startsAt: row.starts_at ?? undefined,
      preempted: row.preempted,
      endsAt: row.ends_at ?? undefined,
      leaseExpiresAt: row.lease_expires_at ?? undefined,
      allocations: row.allocations,
    },
    row.now,
  );
  if (!row.doubtful || step.do !== 'wait') return { row, step };
  return { row, step: { ...step, reason: `${step.reason}; the clock jumped, and nothing expires until it is steady` } };
}
