/** SQL of the delivering side: what is due, who works on it, what came of it. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';

/** A consumer that took a delivery has this long to record the result. Well above an attempt's own deadline. */
export const CLAIM_SECONDS = 60;
/** A message that nobody took within this time counts as lost, and the row is due again. */
const ENQUEUED_SECONDS = 60;

/** What a queue message carries. A message about an attempt that was made meanwhile is stale and does nothing. */
export interface DueDelivery {
  readonly id: string;
  readonly attempt: number;
}

export interface ClaimedDelivery extends Record<string, unknown> {
  readonly id: string;
  readonly webhook_id: string;
  readonly tenant_id: string;
  /** Attempts made before this one. */
  readonly attempt: number;
  /** Names this claim: a result is recorded under it. */
  readonly claimed_until: Instant;
  readonly url: string;
  readonly enabled: boolean;
  readonly secrets: readonly { readonly secret: string; readonly expiresAt?: Instant }[];
  readonly event_id: string;
  readonly event_type: string;
  readonly event_at: Instant;
  readonly subject_kind: string;
  readonly subject_id: string;
  readonly data: unknown;
  readonly traceparent: string | null;
  readonly now: Instant;
}

/**
 * Due deliveries, each handed out once: taking one moves its due time on, so that the next sweep sees it again only if
 * nobody did anything about it. Sweeps at the same time take different rows.
 */
export async function takeDue(db: Sql, limit: number): Promise<DueDelivery[]> {
  return read<DueDelivery & Record<string, unknown>>(
    db,
    `update webhook_deliveries set next_attempt_at = compute_now() + make_interval(secs => $2)
     where id in (
       select id from webhook_deliveries
       where state = 'pending' and next_attempt_at <= compute_now()
         and (claimed_until is null or claimed_until <= compute_now())
       order by next_attempt_at limit $1 for no key update skip locked)
     returning id, attempt`,
    [limit, ENQUEUED_SECONDS],
  );
}

/** Makes this consumer the only one to work on the delivery, and reads all it needs. Undefined: nothing to do. */
export async function claim(db: Sql, d: DueDelivery): Promise<ClaimedDelivery | undefined> {
  const [row] = await read<ClaimedDelivery>(
    db,
    `update webhook_deliveries d set claimed_until = compute_now() + make_interval(secs => $3),
       next_attempt_at = compute_now() + make_interval(secs => $3)
     from webhooks w, events e
     where d.id = $1 and d.attempt = $2 and d.state = 'pending'
       and (d.claimed_until is null or d.claimed_until <= compute_now())
       and w.id = d.webhook_id and e.id = d.event_id
     returning d.id, d.webhook_id, d.tenant_id, d.attempt, d.claimed_until, w.url, w.enabled,
       w.secrets, e.id as event_id, e.type as event_type, e.at as event_at, e.subject_kind, e.subject_id, e.data,
       e.traceparent, compute_now() as now`,
    [d.id, d.attempt, CLAIM_SECONDS],
  );
  return row;
}

export interface OpenDelivery extends Record<string, unknown> {
  readonly attempt: number;
  readonly claimed_until: Instant | null;
  readonly enabled: boolean;
}

/**
 * Locks the webhook, then its delivery, as deleting the webhook does. Undefined when the delivery is settled or gone.
 */
export async function lockPending(tx: Sql, d: { id: string; webhook_id: string }): Promise<OpenDelivery | undefined> {
  const [hook] = await tx.query<{ enabled: boolean }>('select enabled from webhooks where id = $1 for no key update', [
    d.webhook_id,
  ]);
  if (hook === undefined) return undefined;
  const [row] = await tx.query<{ attempt: number; claimed_until: Instant | null }>(
    `select attempt, claimed_until from webhook_deliveries where id = $1 and state = 'pending' for update`,
    [d.id],
  );
  return row === undefined ? undefined : { ...row, enabled: hook.enabled };
}

export interface AttemptRow {
  readonly id: string;
  readonly status: number | null;
  readonly excerpt: string;
  /** Null when no other attempt follows. */
  readonly nextInSeconds: number | null;
}

export async function writeAttempt(tx: Sql, a: AttemptRow): Promise<void> {
  await tx.query(
    `update webhook_deliveries set attempt = attempt + 1, claimed_until = null, response_status = $2,
       response_excerpt = $3,
       next_attempt_at = case when $4::float8 is null then next_attempt_at else compute_now() + make_interval(secs => $4) end
     where id = $1`,
    [a.id, a.status, a.excerpt, a.nextInSeconds],
  );
}

/**
 * How many of the webhook's deliveries died in a row, up to `limit`: counted back from the newest that settled, over
 * those that settled since the webhook was last edited, so that an owner who repaired it starts afresh.
 */
export async function deadInARow(tx: Sql, webhookId: string, limit: number): Promise<number> {
  const [row] = await tx.query<{ dead: number }>(
    `select count(*) as dead from (
       select bool_and(state = 'dead') over (order by state_changed_at desc, id) as so_far from (
         select d.id, d.state, d.state_changed_at from webhook_deliveries d join webhooks w on w.id = d.webhook_id
         where d.webhook_id = $1 and d.state <> 'pending' and d.state_changed_at >= w.updated_at
         order by d.state_changed_at desc, d.id limit $2) newest) run
     where so_far`,
    [webhookId, limit],
  );
  return row!.dead;
}

export async function disable(tx: Sql, webhookId: string, reason: string): Promise<void> {
  await tx.query(
    `update webhooks set enabled = false, disabled_reason = $2, version = version + 1, updated_at = compute_now()
     where id = $1`,
    [webhookId, reason],
  );
}

/** Milliseconds until the next delivery falls due; undefined when none is pending. */
export async function nextDueMs(db: Sql): Promise<number | undefined> {
  const [row] = await read<{ ms: number | null }>(
    db,
    `select ceil(extract(epoch from min(next_attempt_at) - compute_now()) * 1000)::bigint as ms
     from webhook_deliveries where state = 'pending'`,
  );
  return row?.ms == null ? undefined : Math.max(0, row.ms);
}
