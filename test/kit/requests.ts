/**
 * For each operation one request that would succeed if its caller might make it. Who has no rights is refused for this
 * reason alone, and not because the request is wrong.
 */
import type { OperationName } from '#core/operations.ts';

/** One thing of each kind, all of one owner. */
export interface Things {
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly offerId: string;
  readonly joinTokenId: string;
  readonly nodeId: string;
  readonly reservationId: string;
  readonly webhookId: string;
  readonly deliveryId: string;
  /** A tenant that nothing is offered to yet. */
  readonly otherTenantId: string;
}

/** Fields of path and query side by side, the body under `body`. */
type Request = (t: Things) => Readonly<Record<string, unknown>>;

const nothing: Request = () => ({});
const named = { body: { name: 'renamed' } };

export const REQUESTS: { readonly [N in OperationName]?: Request } = {
  'sites.create': () => ({ body: { name: 'another' } }),
  'sites.get': (t) => ({ id: t.siteId }),
  'sites.list': nothing,
  'sites.update': (t) => ({ id: t.siteId, ...named }),
  'sites.delete': (t) => ({ id: t.siteId }),
  'pools.create': (t) => ({ body: { siteId: t.siteId, name: 'another' } }),
  'pools.get': (t) => ({ id: t.poolId }),
  'pools.list': nothing,
  'pools.update': (t) => ({ id: t.poolId, ...named }),
  'pools.delete': (t) => ({ id: t.poolId }),
  'offers.create': (t) => ({ body: { poolId: t.poolId, tenantId: t.otherTenantId, quota: { gpu: 1 } } }),
  'offers.get': (t) => ({ id: t.offerId }),
  'offers.list': nothing,
  'offers.update': (t) => ({ id: t.offerId, body: { priority: 3 } }),
  'offers.delete': (t) => ({ id: t.offerId }),
  'quotas.get': (t) => ({ poolId: t.poolId }),
  'quotas.set': (t) => ({ body: { poolId: t.poolId, tenantId: t.tenantId, resource: 'gpu', limit: 3 } }),
  'joinTokens.create': (t) => ({ body: { poolId: t.poolId } }),
  'joinTokens.list': nothing,
  'joinTokens.revoke': (t) => ({ id: t.joinTokenId }),
  'nodes.list': nothing,
  'nodes.get': (t) => ({ id: t.nodeId }),
  'nodes.cordon': (t) => ({ id: t.nodeId, body: {} }),
  'nodes.uncordon': (t) => ({ id: t.nodeId }),
  'devices.list': nothing,
  'capacity.get': (t) => ({ poolId: t.poolId }),
  'capacity.series': (t) => ({ poolId: t.poolId }),
  'capacity.explain': (t) => ({
    body: { poolId: t.poolId, devices: [{ class: 'gpu', count: 1 }], durationSeconds: 600 },
  }),
  'reservations.create': (t) => ({
    body: { poolId: t.poolId, devices: [{ class: 'gpu', count: 1 }], durationSeconds: 600 },
  }),
  'reservations.get': (t) => ({ id: t.reservationId }),
  'reservations.list': nothing,
  'reservations.renew': (t) => ({ id: t.reservationId, body: {} }),
  'reservations.release': (t) => ({ id: t.reservationId }),
  'reservations.explain': (t) => ({ id: t.reservationId }),
  'usage.list': nothing,
  'webhooks.create': () => ({ body: { url: 'https://example.com/hooks' } }),
  'webhooks.get': (t) => ({ id: t.webhookId }),
  'webhooks.list': nothing,
  'webhooks.update': (t) => ({ id: t.webhookId, body: { eventTypes: ['node.*'] } }),
  'webhooks.delete': (t) => ({ id: t.webhookId }),
  'webhooks.rotateSecret': (t) => ({ id: t.webhookId }),
  'webhooks.test': (t) => ({ id: t.webhookId }),
  'webhooks.deliveries': (t) => ({ id: t.webhookId }),
  'webhooks.redeliver': (t) => ({ id: t.deliveryId }),
  'events.list': nothing,
  watch: nothing,
  'audit.list': nothing,
  'leases.list': nothing,
  'clock.get': nothing,
  'clock.acknowledge': nothing,
};
