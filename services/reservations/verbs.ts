/** reservations.get, list, renew, release, explain. */
import type { z } from '@hono/zod-openapi';
import type { Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import { parseId } from '#core/kernel/ids.ts';
import { allowedEvents } from '#core/kernel/state-table.ts';
import { addSeconds, toMillis } from '#core/kernel/time.ts';
import type { Reservation } from '#core/reservations/contract.ts';
import { reservationStates } from '#core/reservations/states.ts';
import { fingerprintOf, once } from '#db/idempotency.ts';
import { mutate, type Tx } from '#db/mutate.ts';
import { mutationOf, type RequestContext, scopeOf } from '../context.ts';
import { type After, keysetPage, type PageInput, requireCollection } from '../verbs.ts';
import { type Asked, whyNot } from './admit.ts';
import { observe } from './observe.ts';
import * as sql from './queries.ts';

type View = z.input<typeof Reservation>;

/** A reservation lasts at most this long from its start, however often it is renewed. */
const WINDOW_SECONDS_MAX = 366 * 86_400;

/** The reservation, if the caller may do this with it; another tenant's is not found. */
async function authorized(ctx: RequestContext, id: string, verb: string) {
  const found = await sql.byId<View>(ctx.db, parseId('reservation', id, 'id'));
  if (found === undefined) throw problem('NOT_FOUND', `there is no reservation ${id}`);
  const decision = await ctx.require(`compute:reservations:${verb}`, {
    type: 'compute-reservation',
    id,
    tenantId: found.tenant_id,
    ownerId: found.identity_id,
    parentType: 'compute-pool',
    parentId: found.pool_id,
    attributes: found.attributes,
  });
  return { found, decision };
}

export async function get(ctx: RequestContext, input: { id: string }): Promise<View> {
  return (await authorized(ctx, input.id, 'get')).found.view;
}

export async function list(ctx: RequestContext, input: PageInput & { poolId?: string; state?: string }) {
  await requireCollection(ctx, 'compute:reservations:list', 'compute-reservation');
  const { tenantId } = ctx.caller;
  const fetch = (after: After | undefined, limit: number) =>
    sql.list<View>(ctx.db, { tenantId, poolId: input.poolId, state: input.state, after, order: input.order, limit });
  return keysetPage(ctx, 'reservations.list', { ...input }, fetch, (row) => row.view);
}

/** The frame of a verb with an effect: authorize, then once per key, under a row lock, in one transaction. */
async function change(
  ctx: RequestContext,
  id: string,
  verb: string,
  input: Json,
  act: (tx: Tx, row: sql.ReservationRow<never>) => Promise<void>,
): Promise<View> {
  const { decision } = await authorized(ctx, id, verb);
  const fingerprint = fingerprintOf(`reservations.${verb}`, input);
  return mutate(mutationOf(ctx, decision), (tx) =>
    once(tx, scopeOf(ctx, `reservations.${verb}`), fingerprint, async () => {
      const row = await sql.lock(tx, id);
      if (row === undefined) throw problem('NOT_FOUND', `there is no reservation ${id}`);
      await act(tx, row);
      return (await sql.view<View>(tx, id)) as unknown as Json;
    }),
  ) as unknown as Promise<View>;
}

/**
 * Prolongs a reservation that is booked or active. The lease, if there is one, starts anew; `durationSeconds` moves the
 * end to so many seconds from now, and never moves it closer.
 */
export function renew(ctx: RequestContext, input: { id: string; body: { durationSeconds?: number } }): Promise<View> {
  return change(ctx, input.id, 'renew', input as unknown as Json, async (tx, row) => {
    if (row.state !== 'booked' && row.state !== 'active') {
      throw problem('ILLEGAL_TRANSITION', `a reservation that is ${row.state} cannot be renewed`, {
        from: row.state,
        event: 'renew',
        allowed: allowedEvents(reservationStates, row.state),
      });
    }
    const { durationSeconds } = input.body;
    if (durationSeconds === undefined && row.lease_seconds === null) {
      throw problem('INVALID_REQUEST', 'this reservation has no lease to renew', {
        errors: [{ field: 'durationSeconds', message: 'needed where the reservation was made without leaseSeconds' }],
      });
    }
    const limit = await sql.bookedFrom(tx, input.id);
    const asked = durationSeconds === undefined ? row.ends_at! : addSeconds(row.now, durationSeconds);
    const endsAt = toMillis(asked) > toMillis(row.ends_at!) ? asked : row.ends_at!;
    if (toMillis(endsAt) - toMillis(row.starts_at!) > WINDOW_SECONDS_MAX * 1000) {
      throw problem('INVALID_REQUEST', 'a reservation lasts at most 366 days from its start', {
        errors: [{ field: 'durationSeconds', message: 'would end more than 366 days after the start' }],
      });
    }
    if (limit !== null && toMillis(endsAt) > toMillis(limit)) {
      throw problem('CONFLICT', `a device is booked from ${limit}: it can be prolonged until then`);
    }
    await tx.query(
      `update reservations set ends_at = $2, preempted_at = case when $2::timestamptz > ends_at then null else preempted_at end,
         lease_expires_at = $3::timestamptz + make_interval(secs => lease_seconds)
       where id = $1`,
      [input.id, endsAt, row.now],
    );
    // The constraint says whether the longer window is still free.
    await tx.query(
      `update device_bookings b set during = tstzrange(lower(b.during), $2, '[)'), spot = r.spot and r.preempted_at is null
       from allocations a join reservations r on r.id = a.reservation_id
       where a.reservation_id = $1 and b.allocation_id = a.id and b.released_at is null`,
      [input.id, endsAt],
    );
    tx.emit({
      type: 'reservation.renewed',
      tenantId: row.tenant_id,
      kind: 'reservation',
      id: input.id,
      data: { id: input.id, endsAt },
    });
    tx.wake('reservations', input.id);
    tx.audit({
      tenantId: row.tenant_id,
      action: 'compute:reservations:renew',
      type: 'compute-reservation',
      id: input.id,
    });
  });
}

/** Gives the devices back. Asking again, or after the end, changes nothing and answers the same. */
export function release(ctx: RequestContext, input: { id: string }): Promise<View> {
  return change(ctx, input.id, 'release', { id: input.id }, async (tx, row) => {
    if (row.state === 'draft') await abandon(tx, input.id, row.tenant_id, 'released before it was admitted');
    else if (row.state === 'scheduled') await cancel(tx, input.id, row.tenant_id, 'released');
    else if (row.state === 'booked' || row.state === 'active')
      await beginRelease(tx, input.id, row.tenant_id, 'released');
    else return;
    tx.audit({
      tenantId: row.tenant_id,
      action: 'compute:reservations:release',
      type: 'compute-reservation',
      id: input.id,
    });
  });
}

export async function abandon(tx: Tx, id: string, tenantId: string, reason: string): Promise<void> {
  await tx.transition(reservationStates, id, 'abandon', reason);
  tx.emit({ type: 'reservation.abandoned', tenantId, kind: 'reservation', id, data: { id, reason } });
  tx.wake('reservations', id);
}

/** A window that has not begun is given up: nothing was held, so everything is free at once. */
export async function cancel(tx: Tx, id: string, tenantId: string, reason: string): Promise<void> {
  await tx.transition(reservationStates, id, 'cancel', reason);
  await tx.query('update reservations set ended_at = steady_now(), released_at = compute_now() where id = $1', [id]);
  await tx.query(
    'select allocation_settle(a.id) from (select id from allocations where reservation_id = $1 order by node_id, id) a',
    [id],
  );
  tx.emit({ type: 'reservation.released', tenantId, kind: 'reservation', id, data: { id, reason } });
  tx.wake('reservations', id);
}

/** The end begins: metering stops, the machines are told to let go. The devices stay booked until they did. */
export async function beginRelease(tx: Tx, id: string, tenantId: string, reason: string): Promise<void> {
  await tx.transition(reservationStates, id, 'release', reason);
  // By the steady time: nobody pays for what a jump of the clock would add.
  await tx.query('update reservations set ended_at = least(steady_now(), ends_at) where id = $1', [id]);
  // Held until the machine let go, however long that takes: an end that has passed must not make the atom look free. A
  // window that others booked behind it stays theirs; it begins when the machine has let go.
  await tx.query(
    `update device_bookings b set during = tstzrange(lower(b.during), (
         select min(lower(n.during)) from device_bookings n
         where n.device_no = b.device_no and n.released_at is null and lower(n.during) > lower(b.during)), '[)')
     from allocations a where a.reservation_id = $1 and b.allocation_id = a.id and b.released_at is null`,
    [id],
  );
  const rows = await tx.query<{ id: string; node_id: string }>(
    `update allocations a set ended_at = least(steady_now(), r.ends_at) from reservations r
     where a.reservation_id = $1 and r.id = a.reservation_id and a.ended_at is null returning a.id, a.node_id`,
    [id],
  );
  for (const a of rows) {
    tx.wake('nodes.spec', a.node_id);
    tx.wake('usage', a.id);
  }
  tx.emit({ type: 'reservation.releasing', tenantId, kind: 'reservation', id, data: { id, reason } });
  tx.wake('reservations', id);
}

/** What it waits for and how it came here; for a draft, why no node can hold it. */
export async function explain(ctx: RequestContext, input: { id: string }) {
  const { found } = await authorized(ctx, input.id, 'explain');
  const [observed, history] = await Promise.all([observe(ctx.db, input.id), sql.history(ctx.db, input.id)]);
  const { row, step } = observed!;
  const reasons = found.state === 'draft' ? (await whyNot(ctx.db, askedOf(found))).reasons : [];
  return {
    id: input.id,
    state: found.state,
    since: row.changed_at,
    ...('reason' in step ? { waitingFor: step.reason } : {}),
    reasons: [...reasons],
    history: history.map((h) => ({
      event: h.event,
      from: h.from_state,
      to: h.to_state,
      actor: h.actor,
      at: h.at,
      ...(h.reason === null ? {} : { reason: h.reason }),
    })),
  };
}

const askedOf = (row: sql.ReservationRow<View>): Asked => ({
  poolId: row.pool_id,
  devices: row.devices,
  durationSeconds: row.duration_seconds,
  ...(row.gang === null ? {} : { gang: row.gang }),
  ...(row.starts_at === null ? {} : { start: row.starts_at }),
});
