/** Capacity: what can be booked in a pool, and what stands in the way of more. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, instant } from '../kernel/schemas.ts';
import { asked, WHOLE_NODES, wholeNodes } from '../reservations/contract.ts';

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

const POINTS_MAX = 1_000;
const SPAN_SECONDS_MAX = 366 * 86_400;

export const SeriesQuery = z.strictObject({
  poolId: id('pool'),
  from: instant.optional().meta({ description: 'By default now' }),
  to: instant.optional().meta({ description: 'By default a day after `from`; at most 366 days' }),
  stepSeconds: z.coerce
    .number()
    .int()
    .min(60)
    .max(7 * 86_400)
    .default(3600)
    .meta({ description: `Length of one step; at most ${POINTS_MAX} steps in all` }),
});

export const CapacitySeries = z
  .object({
    poolId: id('pool'),
    from: instant,
    to: instant,
    stepSeconds: z.number().int(),
    resources: z.array(
      z.object({
        resource: deviceClass,
        points: z
          .array(
            z.object({
              at: instant,
              allocatable: count.meta({ description: 'Healthy devices on schedulable nodes, as of now' }),
              booked: count.meta({ description: 'Of those: held or booked at some time in the step' }),
              available: count.meta({ description: 'Nobody has them at any time in the step' }),
            }),
          )
          .meta({ description: 'One a step, the last one possibly shorter' }),
      }),
    ),
  })
  .meta({ id: 'CapacitySeries' });
export const SERIES = { POINTS_MAX, SPAN_SECONDS_MAX } as const;

export const CapacityQuestion = z.strictObject(asked).refine(wholeNodes, WHOLE_NODES).meta({ id: 'CapacityQuestion' });

export const CapacityAnswer = z
  .object({
    fits: z.boolean().meta({ description: 'Whether a reservation like this would find its devices at this instant' }),
    free: count.meta({ description: 'Devices of the wanted classes that are open for the window, where nothing fits' }),
    reasons: z
      .array(z.object({ code: z.string(), message: z.string(), nodes: count, example: z.string().optional() }))
      .meta({ description: 'Why not, most nodes first; empty where it fits' }),
  })
  .meta({ id: 'CapacityAnswer' });

export const capacityOperations = {
  'capacity.series': operation({
    name: 'capacity.series',
    method: 'get',
    path: '/v1/capacity/series',
    query: SeriesQuery,
    output: CapacitySeries,
    successStatus: 200,
    iam: { action: 'compute:capacity:series', resource: 'compute-capacity', on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    help: 'Show what of a pool is booked and free over a time, step by step',
  }),
  'capacity.explain': operation({
    name: 'capacity.explain',
    method: 'post',
    path: '/v1/capacity/explain',
    body: CapacityQuestion,
    output: CapacityAnswer,
    successStatus: 200,
    iam: { action: 'compute:capacity:explain', resource: 'compute-capacity', on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    help: 'Say whether a request would fit, and why not, without asking for anything',
  }),
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
