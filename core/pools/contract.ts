/** Pools: scheduling and policy domains in one site, with one GPU model each. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import {
  id,
  instant,
  itemParams,
  labels,
  listQuery,
  name,
  nothing,
  page,
  tenantId,
  version,
} from '../kernel/schemas.ts';

export const PoolClass = z.enum(['metal-host', 'metal-dedicated', 'vps-host', 'provider']).meta({
  description:
    "metal-host: devices of a machine are booked one by one; metal-dedicated: whole machines; vps-host: machines that run VMs; provider: capacity of somebody else's cloud",
});
export const Sharing = z
  .enum(['exclusive', 'mig', 'time-slice', 'mps'])
  .meta({ description: 'How a GPU is shared; only exclusive is accepted for now' });
export const Placer = z
  .enum(['inline', 'pool-lease'])
  .meta({ description: 'inline: placed in the request; only inline is accepted for now' });

const gpuModel = z
  .string()
  .regex(/^[a-z0-9][a-z0-9.-]{0,31}$/, 'expected up to 32 lower-case letters, digits, "." or "-"')
  .meta({ description: 'The one GPU model of the pool', example: 'h100' });

const spotNoticeSeconds = z
  .number()
  .int('expected whole seconds')
  .min(0)
  .max(3600)
  .meta({ description: 'How long a spot reservation goes on after it was told to give way' });

export const Pool = z
  .object({
    id: id('pool'),
    siteId: id('site'),
    tenantId,
    name,
    class: PoolClass,
    gpuModel: gpuModel.optional(),
    sharing: Sharing,
    placer: Placer,
    spotNoticeSeconds,
    labels,
    version,
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Pool' });

export const PoolCreate = z.strictObject({
  siteId: id('site'),
  name,
  class: PoolClass.default('metal-host'),
  gpuModel: gpuModel.optional(),
  sharing: Sharing.default('exclusive'),
  placer: Placer.default('inline'),
  spotNoticeSeconds: spotNoticeSeconds.default(120),
  labels: labels.default({}),
});
export const PoolUpdate = z.strictObject({
  name: name.optional(),
  labels: labels.optional(),
  spotNoticeSeconds: spotNoticeSeconds.optional(),
});

const resource = 'compute-pool';

export const poolOperations = {
  'pools.create': operation({
    name: 'pools.create',
    method: 'post',
    path: '/v1/pools',
    body: PoolCreate,
    output: Pool,
    successStatus: 201,
    iam: { action: 'compute:pools:create', resource, on: 'collection' },
    errors: ['NOT_FOUND', 'CONFLICT'],
    idempotent: true,
    help: 'Create a pool in a site',
  }),
  'pools.get': operation({
    name: 'pools.get',
    method: 'get',
    path: '/v1/pools/{id}',
    params: itemParams('pool'),
    output: Pool,
    successStatus: 200,
    iam: { action: 'compute:pools:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    etag: true,
    help: 'Show a pool of yours, or one offered to you',
  }),
  'pools.list': operation({
    name: 'pools.list',
    method: 'get',
    path: '/v1/pools',
    query: listQuery({ siteId: id('site').optional() }),
    output: page(Pool),
    successStatus: 200,
    iam: { action: 'compute:pools:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'name', 'class', 'gpuModel', 'sharing', 'siteId'],
    help: 'List your pools and those offered to you',
  }),
  'pools.update': operation({
    name: 'pools.update',
    method: 'patch',
    path: '/v1/pools/{id}',
    params: itemParams('pool'),
    body: PoolUpdate,
    output: Pool,
    successStatus: 200,
    iam: { action: 'compute:pools:update', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Change name, labels or spot notice of a pool',
  }),
  'pools.delete': operation({
    name: 'pools.delete',
    method: 'delete',
    path: '/v1/pools/{id}',
    params: itemParams('pool'),
    output: nothing,
    successStatus: 200,
    iam: { action: 'compute:pools:delete', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT', 'VERSION_CONFLICT'],
    idempotent: true,
    help: 'Delete a pool without nodes, offers, tokens or reservations',
  }),
} as const;
