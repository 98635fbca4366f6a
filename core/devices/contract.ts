/** Devices: the units of hardware that are booked. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, listQuery, page } from '../kernel/schemas.ts';

export const Device = z
  .object({
    id: id('device'),
    nodeId: id('node'),
    poolId: id('pool'),
    class: deviceClass,
    stableId: z.string().meta({ description: 'GPU UUID, disk WWN, MAC: what the machine knows it by' }),
    slot: z.number().int(),
    attributes: z
      .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
      .meta({ description: 'What selectors select on' }),
    bookable: z.boolean(),
    health: z.enum(['healthy', 'unhealthy', 'unknown']),
    healthReason: z.string().optional(),
    present: z.boolean(),
    allocationId: id('allocation').optional().meta({ description: 'Who holds it' }),
  })
  .meta({ id: 'Device' });

export const deviceOperations = {
  'devices.list': operation({
    name: 'devices.list',
    method: 'get',
    path: '/v1/devices',
    query: listQuery({
      poolId: id('pool').optional(),
      nodeId: id('node').optional(),
      class: deviceClass.optional(),
      free: z
        .enum(['true', 'false'])
        .optional()
        .meta({ description: 'Only devices that can, or cannot, be booked now' }),
    }),
    output: page(Device),
    successStatus: 200,
    iam: { action: 'compute:devices:list', resource: 'compute-device', on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'class', 'stableId', 'nodeId', 'bookable', 'health', 'allocationId'],
    help: 'List the devices of your nodes',
  }),
} as const;
