/** Every list of the API that is paged by time of creation, and how its rows are put there and taken away. */
import { newId } from '#core/kernel/ids.ts';
import type { ApiName } from './api.ts';
import type { TestDatabase } from './database.ts';

/** What the rows of all lists belong to. */
export interface ListGround {
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly nodeId: string;
  readonly webhookId: string;
}

interface List {
  /** `$1` ids, `$2` times; then the members of the ground that `with` names, from `$3` on. */
  readonly insert: string;
  readonly with: readonly (keyof ListGround)[];
  readonly remove: string;
  readonly newId: () => string;
  readonly input?: (g: ListGround) => Record<string, unknown>;
  /** A filter that selects the same rows and is another list all the same. */
  readonly filter: (g: ListGround) => Record<string, unknown>;
  /** Where an item shows the id, if not under `id`. */
  readonly shownAs?: string;
}

const FROM = 'from unnest($1::text[], $2::timestamptz[]) u (id, at)';

export const LISTS: Readonly<Partial<Record<ApiName, List>>> = {
  'sites.list': {
    insert: `insert into sites (id, tenant_id, name, created_at) select id, $3, id, at ${FROM}`,
    with: ['tenantId'],
    remove: 'delete from sites where id = $1',
    newId: () => newId('site'),
    filter: () => ({ order: 'desc' }),
  },
  'pools.list': {
    insert: `insert into pools (id, tenant_id, site_id, name, class, created_at) select id, $3, $4, id, 'metal-host', at ${FROM}`,
    with: ['tenantId', 'siteId'],
    remove: 'delete from pools where id = $1',
    newId: () => newId('pool'),
    filter: (g) => ({ siteId: g.siteId }),
  },
  'offers.list': {
    insert: `insert into pool_offers (id, pool_id, tenant_id, quota, created_at) select id, $3, id, '{}', at ${FROM}`,
    with: ['poolId'],
    remove: 'delete from pool_offers where id = $1',
    newId: () => newId('offer'),
    filter: (g) => ({ poolId: g.poolId }),
  },
  'joinTokens.list': {
    insert: `insert into join_tokens (id, tenant_id, site_id, pool_id, secret_hash, max_uses, expires_at, created_by, created_at)
             select id, $3, $4, $5, '', 1, compute_now(), 'idn', at ${FROM}`,
    with: ['tenantId', 'siteId', 'poolId'],
    remove: 'delete from join_tokens where id = $1',
    newId: () => newId('joinToken'),
    filter: (g) => ({ poolId: g.poolId }),
  },
  'nodes.list': {
    insert: `insert into nodes (id, tenant_id, site_id, pool_id, name, created_at) select id, $3, $4, $5, id, at ${FROM}`,
    with: ['tenantId', 'siteId', 'poolId'],
    remove: 'delete from nodes where id = $1',
    newId: () => newId('node'),
    filter: () => ({ schedulable: 'false' }),
  },
  'devices.list': {
    insert: `insert into devices (id, node_id, pool_id, class, stable_id, created_at) select id, $3, $4, 'gpu', id, at ${FROM}`,
    with: ['nodeId', 'poolId'],
    remove: 'delete from devices where id = $1',
    newId: () => newId('device'),
    filter: () => ({ class: 'gpu' }),
  },
  'reservations.list': {
    insert: `insert into reservations (id, tenant_id, identity_id, idempotency_key, fingerprint, pool_id, devices, duration_seconds, context, created_at)
             select id, $3, 'idn', id, '', $4, '[]', 60, '{}', at ${FROM}`,
    with: ['tenantId', 'poolId'],
    remove: 'delete from reservations where id = $1',
    newId: () => newId('reservation'),
    filter: () => ({ state: 'draft' }),
  },
  'usage.list': {
    insert: `insert into usage_windows (allocation_id, hour, meter, reservation_id, tenant_id, pool_id, device_seconds)
             select id, at, 'gpu.hours', 'rsv', $3, $4, 1 ${FROM}`,
    with: ['tenantId', 'poolId'],
    remove: 'delete from usage_windows where allocation_id = $1',
    newId: () => newId('allocation'),
    filter: () => ({ meter: 'gpu.hours' }),
    shownAs: 'allocationId',
  },
  'webhooks.list': {
    insert: `insert into webhooks (id, tenant_id, url, event_types, enabled, secrets, created_at)
             select id, $3, 'https://x.test', '{*}', false, '[]', at ${FROM}`,
    with: ['tenantId'],
    remove: 'delete from webhooks where id = $1',
    newId: () => newId('webhook'),
    filter: () => ({ order: 'desc' }),
  },
  'webhooks.deliveries': {
    insert: `insert into webhook_deliveries (id, tenant_id, webhook_id, event_id, created_at) select id, $3, $4, id, at ${FROM}`,
    with: ['tenantId', 'webhookId'],
    remove: 'delete from webhook_deliveries where id = $1',
    newId: () => newId('delivery'),
    input: (g) => ({ id: g.webhookId }),
    filter: () => ({ state: 'pending' }),
  },
  'audit.list': {
    insert: `insert into audit_events (id, tenant_id, at, action, resource_type, resource_id, outcome, context)
             select id, $3, at, 'a', 'b', 'c', 'allow', '{}' ${FROM}`,
    with: ['tenantId'],
    remove: 'delete from audit_events where id = $1',
    newId: () => newId('audit'),
    filter: () => ({ action: 'a' }),
  },
};

export interface ListRow {
  readonly id: string;
  /** To the microsecond. */
  readonly at: string;
}

export async function insertRows(t: TestDatabase, list: List, g: ListGround, rows: readonly ListRow[]): Promise<void> {
  await t.db.query(list.insert, [rows.map((r) => r.id), rows.map((r) => r.at), ...list.with.map((w) => g[w])]);
}
