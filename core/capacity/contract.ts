/** Capacity: what can be booked in a pool, and what stands in the way of more. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, instant } from '../kernel/schemas.ts';

const count = z.number().int().min(0);

export const Capacity = z
  .object({
    poolId: id('pool'),
    at: instant,
    nodes: z.object({ total: count, schedulable: count }),
    resources: z.array(
      z.object({
        resource: deviceClass,
        total: count.meta({ description: 'Bookable devices that the inventory knows' }),
        allocatable: count.meta({ description: 'Of those: healthy, on schedulable nodes' }),
        allocated: count.meta({ description: 'Held now' }),
        reserved: count.meta({ description: 'Of those available: booked for later, and free until then' }),
        available: count.meta({ description: 'Allocatable and free now' }),
        largestFree: count.meta({ description: 'Most that one node can still give' }),
      }),
    ),
    reasons: z
      .array(z.object({ reason: z.string(), nodes: count, example: z.string().optional() }))
      .meta({ description: 'Why nodes take no work, most first' }),
  })
  .meta({ id: 'Capacity' });

export const capacityOperations = {
  'capacity.get': operation({
    name: 'capacity.get',
    method: 'get',
    path: '/v1/capacity',
    query: z.strictObject({ poolId: id('pool') }),
    output: Capacity,
    successStatus: 200,
    iam: { action: 'compute:capacity:get', resource: 'compute-capacity', on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    help: 'Show what a pool can hold, holds and has free',
  }),
} as const;
