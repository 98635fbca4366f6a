/** Offers: a pool made visible to another tenant, with a quota for each resource. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import {
  deviceClass,
  id,
  instant,
  itemParams,
  listQuery,
  nothing,
  page,
  tenantId,
  version,
} from '../kernel/schemas.ts';

export const OfferQuota = z
  .partialRecord(deviceClass, z.number().int().min(0).max(1_000_000))
  .meta({ description: 'Resource to count; a resource that is missing grants zero', example: { gpu: 16 } });
const priority = z.number().int().min(-1000).max(1000).meta({ description: 'Higher goes first where requests wait' });

export const Offer = z
  .object({
    id: id('offer'),
    poolId: id('pool'),
    tenantId,
    quota: OfferQuota,
    priority,
    version,
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Offer' });

export const OfferCreate = z.strictObject({
  poolId: id('pool'),
  tenantId,
  quota: OfferQuota,
  priority: priority.default(0),
});
export const OfferUpdate = z.strictObject({ quota: OfferQuota.optional(), priority: priority.optional() });

const resource = 'compute-offer';

export const offerOperations = {
  'offers.create': operation({
    name: 'offers.create',
    method: 'post',
    path: '/v1/offers',
    body: OfferCreate,
    output: Offer,
    successStatus: 201,
    iam: { action: 'compute:offers:create', resource, on: 'collection' },
    errors: ['NOT_FOUND', 'CONFLICT'],
    idempotent: true,
    help: 'Offer a pool of yours to a tenant',
  }),
  'offers.get': operation({
    name: 'offers.get',
    method: 'get',
    path: '/v1/offers/{id}',
    params: itemParams('offer'),
    output: Offer,
    successStatus: 200,
    iam: { action: 'compute:offers:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    etag: true,
    help: 'Show an offer',
  }),
  'offers.list': operation({
    name: 'offers.list',
    method: 'get',
    path: '/v1/offers',
    query: listQuery({ poolId: id('pool').optional() }),
    output: page(Offer),
    successStatus: 200,
    iam: { action: 'compute:offers:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'poolId', 'tenantId', 'quota', 'priority'],
    help: 'List the offers of your pools, and those made to you',
  }),
  'offers.update': operation({
    name: 'offers.update',
    method: 'patch',
    path: '/v1/offers/{id}',
    params: itemParams('offer'),
    body: OfferUpdate,
    output: Offer,
    successStatus: 200,
    iam: { action: 'compute:offers:update', resource, on: 'item' },
    errors: ['NOT_FOUND', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Change quota or priority of an offer; what is held already stays',
  }),
  'offers.delete': operation({
    name: 'offers.delete',
    method: 'delete',
    path: '/v1/offers/{id}',
    params: itemParams('offer'),
    output: nothing,
    successStatus: 200,
    iam: { action: 'compute:offers:delete', resource, on: 'item' },
    errors: ['NOT_FOUND', 'VERSION_CONFLICT'],
    idempotent: true,
    help: 'Withdraw an offer; what is held already stays',
  }),
} as const;
