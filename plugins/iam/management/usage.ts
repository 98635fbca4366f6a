/** The usage ledger: each event once for its tenant and key; a repeat gives the first receipt. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import type { UsageEvent } from '#core/iam/port.ts';
import type { Database, Sql } from '#core/kernel/database.ts';
import { fromMillis } from '#core/kernel/time.ts';
import { rows, storageError } from '../storage.ts';
import { id, type Methods, method } from './method.ts';

const EVENTS_MAX = 100;
const METER = /^[a-z][a-z0-9_.-]{0,63}$/;
const TAG = /^[A-Za-z][A-Za-z0-9_.:-]{0,63}$/;

interface Receipt extends Record<string, unknown> {
  readonly id: string;
  readonly tenantId: string;
  readonly meter: string;
  readonly duplicate: boolean;
}

const RECORD = `
  with given as (
    select e ->> 'tenantId' as tenant_id, e ->> 'meter' as meter, (e ->> 'quantity')::numeric as quantity,
      (e ->> 'occurredAt')::timestamptz as occurred_at, coalesce(e ->> 'idempotencyKey', 'once:' || gen_random_uuid()) as key,
      e ->> 'identityId' as identity_id, coalesce(e -> 'tags', '{}') as tags, n
    from jsonb_array_elements($1::jsonb) with ordinality as x (e, n)
  ), added as (
    insert into iam.usage (tenant_id, meter, quantity, occurred_at, idempotency_key, identity_id, tags)
    select tenant_id, meter, quantity, occurred_at, key, identity_id, tags from given order by tenant_id, key
    on conflict (tenant_id, idempotency_key) do nothing
    returning id, tenant_id, meter, idempotency_key
  )
  select coalesce(a.id, u.id) as id, g.tenant_id as "tenantId", g.meter, a.id is null as duplicate,
    a.id is null and u.meter <> g.meter as clash
  from given g
  left join added a on a.tenant_id = g.tenant_id and a.idempotency_key = g.key
  left join iam.usage u on u.tenant_id = g.tenant_id and u.idempotency_key = g.key
  order by g.n`;

/** All or nothing. Throws CONFLICT when a key was used for another meter, INVALID_INPUT for a time out of range. */
async function record(sql: Sql, events: readonly Omit<UsageEvent, 'idempotencyKey'>[]): Promise<Receipt[]> {
  const [range] = await rows<{ wrong: boolean }>(
    sql,
    `select exists (select 1 from jsonb_array_elements($1::jsonb) e
       where (e ->> 'occurredAt')::timestamptz not between compute_now() - interval '366 days' and compute_now() + interval '5 minutes') as wrong`,
    [JSON.stringify(events)],
  );
  if (range!.wrong) throw new IamError('INVALID_INPUT', 'occurredAt lies more than 5 minutes ahead or 366 days back');
  const receipts = await rows<Receipt & { clash: boolean }>(sql, RECORD, [JSON.stringify(events)]);
  if (receipts.some((receipt) => receipt.clash)) {
    throw new IamError('CONFLICT', 'the idempotency key was used for another meter');
  }
  return receipts.map(({ clash: _, ...receipt }) => receipt);
}

async function atOnce(db: Database, events: readonly Omit<UsageEvent, 'idempotencyKey'>[]): Promise<Receipt[]> {
  const keys = events
    .map((e) => ('idempotencyKey' in e ? `${e.tenantId}\n${e.idempotencyKey}` : undefined))
    .filter(Boolean);
  if (new Set(keys).size < keys.length)
    throw new IamError('INVALID_INPUT', 'an idempotency key stands twice in one call');
  try {
    return await db.transaction((tx) => record(tx, events));
  } catch (e) {
    throw storageError(e);
  }
}

/** Any number of events, a hundred to a transaction. Repeating the call is harmless. */
export async function recordUsage(db: Database, events: readonly UsageEvent[]): Promise<void> {
  for (let at = 0; at < events.length; at += EVENTS_MAX) await atOnce(db, events.slice(at, at + EVENTS_MAX));
}

const event = z.strictObject({
  tenantId: id.optional(),
  meter: z.string().regex(METER),
  quantity: z.number().min(0).max(1e15).default(1),
  identityId: id.optional(),
  tags: z
    .record(z.string().regex(TAG), z.string().max(128))
    .refine((tags) => Object.keys(tags).length <= 10, 'takes at most 10 tags')
    .optional(),
  occurredAt: z.int().min(0).max(8_640_000_000_000_000).optional(),
  idempotencyKey: z.string().min(1).max(200).optional(),
});

export const usageMethods: Methods = {
  'billing/recordMany': method(
    z.strictObject({ tenantId: id, events: z.array(event).min(1).max(EVENTS_MAX) }),
    async (call, input) => {
      await call.allow({ tenantId: input.tenantId, action: 'iam:billing:record', resource: 'billing' });
      const now = fromMillis(call.engine.now(call.session));
      const events = input.events.map((e) => ({
        ...e,
        tenantId: e.tenantId ?? input.tenantId,
        occurredAt: e.occurredAt === undefined ? now : fromMillis(e.occurredAt),
      }));
      const tenants = [...new Set(events.map((e) => e.tenantId))];
      const [outside] = await call.read(
        'select 1 from unnest($1::text[]) as t where not exists (select 1 from iam.tenant_chain(t) c where c.id = $2) limit 1',
        [tenants, input.tenantId],
      );
      if (outside !== undefined) throw new IamError('NOT_FOUND', 'an event names a tenant that is not below the call');
      return { receipts: await atOnce(call.db, events) };
    },
  ),
  'billing/check': method(
    z.strictObject({ tenantId: id, meter: z.string().regex(METER).optional() }),
    async (call, input) => {
      await requireBelow(call.db, input.tenantId, call.snapshot.session.tenantId);
      return { allowed: true, budgets: [] };
    },
  ),
};

/** Throws ACCESS_DENIED unless the tenant is `top` or stands below it. */
export async function requireBelow(sql: Sql, tenantId: string, top: string): Promise<void> {
  const found = await rows(sql, 'select 1 from iam.tenant_chain($1) where id = $2', [tenantId, top]);
  if (found.length === 0) throw new IamError('ACCESS_DENIED', 'the tenant is neither yours nor below yours');
}
