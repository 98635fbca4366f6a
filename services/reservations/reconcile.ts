/** The verbs of the `reservations` reconciler: observe, and one act for each step that the plan can name. */
import type { Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { ReservationStep } from '#core/reservations/plan.ts';
import { reservationStates } from '#core/reservations/states.ts';
import { type MutationContext, mutate, type Tx } from '#db/mutate.ts';
import { observe } from './observe.ts';
import * as sql from './queries.ts';
import { repair } from './repair.ts';
import { abandon, beginRelease, cancel } from './verbs.ts';

export type StepTaken =
  | { readonly kind: 'gone' }
  | { readonly kind: 'settled' }
  | { readonly kind: 'waits'; readonly reason: string; readonly recheckAt: Instant }
  | { readonly kind: 'did'; readonly what: ReservationStep['do'] };

/** Looks, decides, and acts on a fresh look under the row's lock: a renewal in between is seen. */
export async function step(ctx: MutationContext, id: string): Promise<StepTaken> {
  const seen = await observe(ctx.db, id);
  if (seen === undefined) return { kind: 'gone' };
  if (seen.step.do === 'nothing') return { kind: 'settled' };
  if (seen.step.do === 'wait') return { kind: 'waits', reason: seen.step.reason, recheckAt: seen.step.recheckAt };
  return mutate(ctx, async (tx) => {
    await sql.lock(tx, id);
    const now = await observe(tx, id);
    if (now === undefined) return { kind: 'gone' };
    return act(tx, id, now.row.tenant_id, now.step);
  });
}

async function act(tx: Tx, id: string, tenantId: string, todo: ReservationStep): Promise<StepTaken> {
  switch (todo.do) {
    case 'nothing':
      return { kind: 'settled' };
    case 'wait':
      return { kind: 'waits', reason: todo.reason, recheckAt: todo.recheckAt };
    case 'abandon':
      await abandon(tx, id, tenantId, todo.reason);
      break;
    case 'release':
      await beginRelease(tx, id, tenantId, todo.reason);
      tx.audit({
        tenantId,
        action: 'compute:reservations:release',
        type: 'compute-reservation',
        id,
        data: { reason: todo.reason },
      });
      break;
    case 'cancel':
      await cancel(tx, id, tenantId, todo.reason);
      tx.audit({
        tenantId,
        action: 'compute:reservations:release',
        type: 'compute-reservation',
        id,
        data: { reason: todo.reason },
      });
      break;
    case 'repair':
      await repair(tx, id, todo.allocationIds);
      break;
    case 'begin':
      await begin(tx, id, tenantId);
      break;
    case 'activate': {
      await tx.transition(reservationStates, id, 'activate');
      await tx.query('update reservations set activated_at = compute_now() where id = $1', [id]);
      const rows = await tx.query<{ id: string }>(
        'update allocations set active_at = compute_now() where reservation_id = $1 and active_at is null returning id',
        [id],
      );
      for (const a of rows) tx.wake('usage', a.id);
      tx.emit({ type: 'reservation.active', tenantId, kind: 'reservation', id, data: { id } });
      break;
    }
    case 'settle':
      for (const allocation of todo.allocationIds) await tx.query('select allocation_settle($1)', [allocation]);
      if (todo.done) {
        await tx.transition(reservationStates, id, 'settle', todo.reason);
        await tx.query('update reservations set released_at = compute_now() where id = $1', [id]);
        tx.emit({ type: 'reservation.released', tenantId, kind: 'reservation', id, data: { id, reason: todo.reason } });
      }
      break;
  }
  return { kind: 'did', what: todo.do };
}

/** All devices pass into its hands; refused whole, and looked at again, while somebody still has one of them. */
async function begin(tx: Tx, id: string, tenantId: string): Promise<void> {
  const begun = await tx.query<{ node_id: string; begun: boolean }>(
    `select a.node_id, allocation_begin(a.id) as begun
     from (select id, node_id from allocations where reservation_id = $1 order by node_id, id) a`,
    [id],
  );
  if (!begun.every((a) => a.begun)) throw problem('CONTENTION', 'a device is held again');
  await tx.transition(reservationStates, id, 'begin');
  // One that begins late has its first lease whole.
  await tx.query(
    'update reservations set lease_expires_at = compute_now() + make_interval(secs => lease_seconds) where id = $1',
    [id],
  );
  for (const a of begun) tx.wake('nodes.spec', a.node_id);
  const view = await sql.view<Json>(tx, id);
  tx.emit({ type: 'reservation.booked', tenantId, kind: 'reservation', id, data: view });
  tx.wake('reservations', id);
}
