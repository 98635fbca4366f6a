/** Quotas: how much of a resource a tenant may hold in one pool at the same time. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, tenantId } from '../kernel/schemas.ts';

export const Quota = z
  .object({
    tenantId,
    poolId: id('pool'),
    resource: deviceClass,
    limit: z.number().int().min(0).nullable().meta({ description: 'null: no cap' }),
    used: z.number().int().min(0).meta({ description: 'Held at this moment' }),
    source: z.enum(['offer', 'set', 'owner']).meta({ description: 'Who gave the limit' }),
  })
  .meta({ id: 'Quota' });

const resource = 'compute-quota';

export const quotaOperations = {
  'quotas.get': operation({
    name: 'quotas.get',
    method: 'get',
    path: '/v1/quotas',
    query: z.strictObject({ poolId: id('pool'), tenantId: tenantId.optional() }),
    output: z.object({ items: z.array(Quota) }),
    successStatus: 200,
    iam: { action: 'compute:quotas:get', resource, on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    columns: ['resource', 'used', 'limit', 'source'],
    help: 'Show the quotas of a tenant (yours by default) in a pool',
  }),
  'quotas.set': operation({
    name: 'quotas.set',
    method: 'post',
    path: '/v1/quotas',
    body: z.strictObject({
      poolId: id('pool'),
      tenantId,
      resource: deviceClass,
      limit: z
        .number()
        .int()
        .min(0)
        .max(1_000_000)
        .nullable()
        .meta({ description: 'null takes the override back: the offer counts again' }),
    }),
    output: Quota,
    successStatus: 200,
    iam: { action: 'compute:quotas:set', resource, on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: true,
    help: 'Override what an offer grants; below the use it only refuses new requests',
  }),
} as const;
