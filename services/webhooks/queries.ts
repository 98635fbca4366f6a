/** SQL of the owner's side: webhooks as they are shown and edited, and their deliveries. */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import { type After, keysetOrder } from '../verbs.ts';

export interface WebhookView {
  readonly id: string;
  readonly tenantId: string;
  readonly url: string;
  readonly eventTypes: string[];
  readonly enabled: boolean;
  readonly disabledReason?: string;
  readonly version: number;
  readonly createdAt: Instant;
  readonly updatedAt: Instant;
}

interface WebhookRow extends Record<string, unknown> {
  readonly id: string;
  readonly tenant_id: string;
  readonly url: string;
  readonly event_types: string[];
  readonly enabled: boolean;
  readonly disabled_reason: string | null;
  readonly version: number;
  readonly created_at: Instant;
  readonly updated_at: Instant;
}

const WEBHOOK = 'id, tenant_id, url, event_types, enabled, disabled_reason, version, created_at, updated_at';

function webhookView(r: WebhookRow): WebhookView {
  return {
    id: r.id,
    tenantId: r.tenant_id,
    url: r.url,
    eventTypes: r.event_types,
    enabled: r.enabled,
    ...(r.disabled_reason === null ? {} : { disabledReason: r.disabled_reason }),
    version: r.version,
    createdAt: r.created_at,
    updatedAt: r.updated_at,
  };
}

export async function byId(db: Sql, id: string): Promise<WebhookView | undefined> {
  const [row] = await read<WebhookRow>(db, `select ${WEBHOOK} from webhooks where id = $1`, [id]);
  return row === undefined ? undefined : webhookView(row);
}

export async function lock(tx: Sql, id: string): Promise<WebhookView | undefined> {
  const [row] = await tx.query<WebhookRow>(`select ${WEBHOOK} from webhooks where id = $1 for no key update`, [id]);
  return row === undefined ? undefined : webhookView(row);
}

/** How many the tenant has; serialized by tenant, so that the bound holds for two that are made at once. */
export async function countLocked(tx: Sql, tenantId: string): Promise<number> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('webhooks/' || $1, 0))`, [tenantId]);
  const [row] = await tx.query<{ n: number }>('select count(*) as n from webhooks where tenant_id = $1', [tenantId]);
  return row!.n;
}

export interface NewWebhook {
  readonly id: string;
  readonly tenantId: string;
  readonly url: string;
  readonly eventTypes: readonly string[];
  readonly enabled: boolean;
  readonly secret: string;
}

export async function insert(tx: Sql, w: NewWebhook): Promise<WebhookView> {
  const [row] = await tx.query<WebhookRow>(
    `insert into webhooks (id, tenant_id, url, event_types, enabled, secrets)
     values ($1, $2, $3, $4, $5, jsonb_build_array(jsonb_build_object('secret', $6::text, 'createdAt', compute_now())))
     returning ${WEBHOOK}`,
    [w.id, w.tenantId, w.url, w.eventTypes, w.enabled, w.secret],
  );
  return webhookView(row!);
}

export async function update(
  tx: Sql,
  id: string,
  w: { url: string; eventTypes: readonly string[]; enabled: boolean },
): Promise<WebhookView> {
  const [row] = await tx.query<WebhookRow>(
    `update webhooks set url = $2, event_types = $3, enabled = $4,
       disabled_reason = case when $4 then null else coalesce(disabled_reason, 'disabled by its owner') end,
       version = version + 1, updated_at = compute_now()
     where id = $1 returning ${WEBHOOK}`,
    [id, w.url, w.eventTypes, w.enabled],
  );
  return webhookView(row!);
}

/** The new secret signs first; the one before it signs along until its end, and any older is gone. */
export async function rotate(tx: Sql, id: string, secret: string, overlapSeconds: number): Promise<WebhookView> {
  const [row] = await tx.query<WebhookRow>(
    `update webhooks set
       secrets = jsonb_build_array(
         jsonb_build_object('secret', $2::text, 'createdAt', compute_now()),
         (secrets -> 0) || jsonb_build_object('expiresAt', compute_now() + make_interval(secs => $3))),
       version = version + 1, updated_at = compute_now()
     where id = $1 returning ${WEBHOOK}`,
    [id, secret, overlapSeconds],
  );
  return webhookView(row!);
}

export async function remove(tx: Sql, id: string): Promise<void> {
  await tx.query('delete from webhooks where id = $1', [id]);
}

/** A row with its place in the list. */
interface Placed<V> {
  readonly created_at: Instant;
  readonly id: string;
  readonly view: V;
}

export async function list(
  db: Sql,
  tenantId: string,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<Placed<WebhookView>[]> {
  const { cmp, dir } = keysetOrder(order);
  const rows = await read<WebhookRow>(
    db,
    `select ${WEBHOOK} from webhooks
     where tenant_id = $1 and ($2::timestamptz is null or (created_at, id) ${cmp} ($2, $3))
     order by created_at ${dir}, id ${dir} limit $4`,
    [tenantId, after?.at ?? null, after?.id ?? null, limit],
  );
  return rows.map((r) => ({ created_at: r.created_at, id: r.id, view: webhookView(r) }));
}

export type DeliveryState = 'pending' | 'delivered' | 'dead';

export interface DeliveryView {
  readonly id: string;
  readonly webhookId: string;
  readonly eventId: string;
  readonly eventType: string;
  readonly state: DeliveryState;
  readonly attempt: number;
  readonly nextAttemptAt?: Instant;
  readonly responseStatus?: number;
  readonly responseExcerpt?: string;
  readonly createdAt: Instant;
}

interface DeliveryRow extends Record<string, unknown> {
  readonly id: string;
  readonly webhook_id: string;
  readonly event_id: string;
  /** Null once the event is older than events are kept. */
  readonly type: string | null;
  readonly state: DeliveryState;
  readonly attempt: number;
  readonly next_attempt_at: Instant;
  readonly response_status: number | null;
  readonly response_excerpt: string | null;
  readonly created_at: Instant;
}

const DELIVERY = `d.id, d.webhook_id, d.event_id, e.type, d.state, d.attempt, d.next_attempt_at, d.response_status,
  d.response_excerpt, d.created_at from webhook_deliveries d left join events e on e.id = d.event_id`;

function deliveryView(r: DeliveryRow): DeliveryView {
  return {
    id: r.id,
    webhookId: r.webhook_id,
    eventId: r.event_id,
    eventType: r.type ?? 'unknown',
    state: r.state,
    attempt: r.attempt,
    ...(r.state === 'pending' ? { nextAttemptAt: r.next_attempt_at } : {}),
    ...(r.response_status === null ? {} : { responseStatus: r.response_status }),
    ...(r.response_excerpt === null ? {} : { responseExcerpt: r.response_excerpt }),
    createdAt: r.created_at,
  };
}

export async function deliveryById(db: Sql, id: string): Promise<DeliveryView | undefined> {
  const [row] = await read<DeliveryRow>(db, `select ${DELIVERY} where d.id = $1`, [id]);
  return row === undefined ? undefined : deliveryView(row);
}

export async function deliveries(
  db: Sql,
  webhookId: string,
  state: DeliveryState | undefined,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
): Promise<Placed<DeliveryView>[]> {
  const { cmp, dir } = keysetOrder(order);
  const rows = await read<DeliveryRow>(
    db,
    `select ${DELIVERY}
     where d.webhook_id = $1 and ($2::text is null or d.state = $2)
       and ($3::timestamptz is null or (d.created_at, d.id) ${cmp} ($3, $4))
     order by d.created_at ${dir}, d.id ${dir} limit $5`,
    [webhookId, state ?? null, after?.at ?? null, after?.id ?? null, limit],
  );
  return rows.map((r) => ({ created_at: r.created_at, id: r.id, view: deliveryView(r) }));
}

/** An event of its own that goes to this webhook alone, whatever types it asked for. */
export async function insertTest(tx: Sql, w: WebhookView): Promise<string> {
  const [row] = await tx.query<{ id: string }>(
    `with event as (
       insert into events (type, tenant_id, subject_kind, subject_id, data)
       values ('webhook.test', $1, 'webhook', $2, jsonb_build_object('id', $2::text)) returning id)
     insert into webhook_deliveries (webhook_id, tenant_id, event_id) select $2, $1, id from event returning id`,
    [w.tenantId, w.id],
  );
  return row!.id;
}

/** A fresh schedule, beginning now. A claim that is running keeps the row until it ends. */
export async function restart(tx: Sql, deliveryId: string): Promise<void> {
  await tx.query('update webhook_deliveries set attempt = 0, next_attempt_at = compute_now() where id = $1', [
    deliveryId,
  ]);
}

/** Whether the event is still kept: without it there is nothing to send. */
export async function eventKept(tx: Sql, eventId: string): Promise<boolean> {
  return (await tx.query('select 1 from events where id = $1', [eventId])).length > 0;
}
