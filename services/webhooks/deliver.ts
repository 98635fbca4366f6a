/**
 * One attempt of one delivery: claim the row, send, record. The row is the truth; a message, a sweep or a host that is
 * lost in between only delays. No transaction is open while the endpoint is called.
 *
 * At least once: a consumer that dies after the endpoint answered leaves a claim that runs out, and the event is sent
 * again under the same `webhook-id`, by which receivers know it.
 */
import type { Database } from '#core/kernel/database.ts';
import { toMillis } from '#core/kernel/time.ts';
import { DEAD_IN_A_ROW_MAX, retryDelaySeconds } from '#core/webhooks/schedule.ts';
import { sign } from '#core/webhooks/signature.ts';
import { deliveryStates } from '#core/webhooks/states.ts';
import type { WebhookAnswer, WebhookTransport } from '#core/webhooks/transport.ts';
import { type MutationContext, mutate, type Tx } from '#db/mutate.ts';
import * as sql from './delivery-queries.ts';

export type { ClaimedDelivery, DueDelivery } from './delivery-queries.ts';

export interface DeliveryContext {
  readonly db: Database;
  readonly transport: WebhookTransport;
  /** A number in [0, 1); spreads the retries. */
  readonly random: () => number;
}

/** What became of the attempt. `skipped`: another consumer has it, or it is settled. */
export type AttemptEnd = 'delivered' | 'retry' | 'dead' | 'skipped';

const GONE = 410;
const SENDER = 'Better-Compute-Webhooks/1';

export async function attemptDelivery(ctx: DeliveryContext, due: sql.DueDelivery): Promise<AttemptEnd> {
  const claimed = await claimDelivery(ctx.db, due);
  if (claimed === undefined) return 'skipped';
  if (!claimed.enabled) return recordAttempt(ctx, claimed, { kind: 'refused', reason: 'the webhook is disabled' });
  return recordAttempt(ctx, claimed, await ctx.transport.post(await requestOf(claimed)));
}

export function claimDelivery(db: Database, due: sql.DueDelivery): Promise<sql.ClaimedDelivery | undefined> {
  return sql.claim(db, due);
}

/** Due deliveries for a queue, or for this host to attempt. Each is handed out once a minute at most. */
export function takeDue(db: Database, limit: number): Promise<sql.DueDelivery[]> {
  return sql.takeDue(db, limit);
}

/** Milliseconds until the next delivery falls due; undefined when none is pending. */
export function nextDueMs(db: Database): Promise<number | undefined> {
  return sql.nextDueMs(db);
}

/** The same body at every attempt; a fresh timestamp, and the signatures of the secrets that live now. */
export async function requestOf(d: sql.ClaimedDelivery) {
  const body = JSON.stringify({
    type: d.event_type,
    timestamp: d.event_at,
    id: d.event_id,
    tenantId: d.tenant_id,
    subject: { kind: d.subject_kind, id: d.subject_id },
    data: d.data,
  });
  const now = toMillis(d.now);
  const live = d.secrets.filter((s) => s.expiresAt === undefined || toMillis(s.expiresAt) > now).slice(0, 2);
  const signed = await sign(
    d.event_id,
    Math.floor(now / 1000),
    body,
    live.map((s) => s.secret),
  );
  return {
    url: d.url,
    body,
    headers: {
      'content-type': 'application/json',
      'user-agent': SENDER,
      ...(d.traceparent === null ? {} : { traceparent: d.traceparent }),
      ...signed,
    },
  };
}

/**
 * Writes the result. A consumer whose claim ran out and was taken by another may still report a success; its failure
 * says nothing any more.
 */
export function recordAttempt(
  ctx: Pick<DeliveryContext, 'db' | 'random'>,
  claimed: sql.ClaimedDelivery,
  answer: WebhookAnswer,
): Promise<AttemptEnd> {
  const roll = ctx.random();
  return mutate(deliveryMutation(ctx.db), async (tx) => {
    const open = await sql.lockPending(tx, claimed);
    if (open === undefined) return 'skipped';
    const ok = answer.kind === 'answered' && answer.status >= 200 && answer.status < 300;
    const mine = open.attempt === claimed.attempt && open.claimed_until === claimed.claimed_until;
    if (!ok && !mine) return 'skipped';
    const status = answer.kind === 'answered' ? answer.status : null;
    const excerpt = answer.kind === 'answered' ? answer.excerpt : answer.reason;
    if (ok) {
      await sql.writeAttempt(tx, { id: claimed.id, status, excerpt, nextInSeconds: null });
      await tx.transition(deliveryStates, claimed.id, 'deliver', `the endpoint answered ${status}`);
      return 'delivered';
    }
    const asked = answer.kind === 'answered' ? answer.retryAfterSeconds : undefined;
    const next = retryDelaySeconds(claimed.attempt + 1, roll, asked);
    const over = !open.enabled || status === GONE;
    await sql.writeAttempt(tx, { id: claimed.id, status, excerpt, nextInSeconds: over ? null : (next ?? null) });
    if (next !== undefined && !over) return 'retry';
    await tx.transition(deliveryStates, claimed.id, 'give-up', whyDead(open.enabled, status));
    if (open.enabled) await disableIfHopeless(tx, claimed, status);
    return 'dead';
  });
}

function whyDead(enabled: boolean, status: number | null): string {
  if (!enabled) return 'the webhook is disabled';
  return status === GONE ? 'the endpoint answered 410 Gone' : 'the last attempt failed';
}

/** An endpoint that says it is gone, or that let so many deliveries die one after the other, gets no more. */
async function disableIfHopeless(tx: Tx, d: sql.ClaimedDelivery, status: number | null): Promise<void> {
  const dead = await sql.deadInARow(tx, d.webhook_id, DEAD_IN_A_ROW_MAX);
  if (status !== GONE && dead < DEAD_IN_A_ROW_MAX) return;
  const reason =
    status === GONE ? 'the endpoint answered 410 Gone' : `${DEAD_IN_A_ROW_MAX} deliveries in a row failed for good`;
  await sql.disable(tx, d.webhook_id, reason);
  tx.emit({
    type: 'webhook.disabled',
    tenantId: d.tenant_id,
    kind: 'webhook',
    id: d.webhook_id,
    data: { id: d.webhook_id, reason },
  });
  tx.audit({
    tenantId: d.tenant_id,
    action: 'compute:webhooks:disable',
    type: 'compute-webhook',
    id: d.webhook_id,
    data: { reason },
  });
}

function deliveryMutation(db: Database): MutationContext {
  return { db, actor: 'webhooks', admission: { system: 'webhooks' } };
}
