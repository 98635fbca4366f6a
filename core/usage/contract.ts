/** Usage: what was held, by allocation, hour and meter. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { id, instant, listQuery } from '../kernel/schemas.ts';

export const UsageRow = z
  .object({
    reservationId: id('reservation'),
    allocationId: id('allocation'),
    poolId: id('pool'),
    meter: z.string().meta({ example: 'gpu.h100.hours' }),
    hour: instant.meta({ description: 'Beginning of the hour' }),
    deviceSeconds: z.number().int().meta({ description: 'Devices times seconds held in this hour' }),
    sealed: z.boolean().meta({ description: 'Final: will not change any more' }),
  })
  .meta({ id: 'UsageRow' });

export const usageOperations = {
  'usage.list': operation({
    name: 'usage.list',
    method: 'get',
    path: '/v1/usage',
    query: listQuery({
      from: instant.optional().meta({ description: 'Hours that begin at or after' }),
      to: instant.optional().meta({ description: 'Hours that begin before' }),
      reservationId: id('reservation').optional(),
      meter: z.string().max(64).optional(),
    }),
    output: z.object({
      items: z.array(UsageRow),
      nextCursor: z.string().optional(),
      sums: z
        .array(
          z.object({
            meter: z.string(),
            deviceSeconds: z.number().int(),
            hours: z.string().meta({ description: 'Device-hours, decimal', example: '3.5000' }),
          }),
        )
        .meta({ description: 'Over everything that the filters select, not this page alone' }),
    }),
    successStatus: 200,
    iam: { action: 'compute:usage:list', resource: 'compute-usage', on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['hour', 'meter', 'deviceSeconds', 'sealed', 'reservationId'],
    help: 'List what you used, by hour and meter, with sums',
  }),
} as const;
