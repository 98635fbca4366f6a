/** Leases: who owns which shard, gateway or singleton, and under which epoch. For operators. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { instant } from '../kernel/schemas.ts';

export const Lease = z
  .object({
    name: z.string().meta({ example: 'shard:3' }),
    holder: z.string(),
    epoch: z.number().int(),
    acquiredAt: instant,
    expiresAt: instant,
    held: z.boolean().meta({ description: 'Not expired' }),
  })
  .meta({ id: 'Lease' });

export const leaseOperations = {
  'leases.list': operation({
    name: 'leases.list',
    method: 'get',
    path: '/v1/leases',
    query: z.strictObject({
      prefix: z.string().max(128).optional().meta({ description: 'Such as gateway: or shard:' }),
    }),
    output: z.object({ items: z.array(Lease) }),
    successStatus: 200,
    iam: { action: 'compute:leases:list', resource: 'compute-work', on: 'collection', rootOnly: true },
    errors: [],
    idempotent: false,
    columns: ['name', 'holder', 'epoch', 'held', 'expiresAt'],
    help: 'List the leases with holders and epochs (operators of the platform only)',
  }),
} as const;
