/** Nodes: machines, described by several independent axes. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, instant, itemParams, labels, listQuery, page, tenantId, version } from '../kernel/schemas.ts';

export const Condition = z.object({
  type: z.string().meta({ description: 'Such as GpuCountMismatch' }),
  subject: z.string().optional().meta({ description: 'Stable id of the device concerned; absent: the whole node' }),
  effect: z.enum(['NoSchedule', 'none']),
  reason: z.string(),
  message: z.string(),
  since: instant,
});

export const Node = z
  .object({
    id: id('node'),
    tenantId,
    siteId: id('site'),
    poolId: id('pool'),
    name: z.string(),
    role: z.enum(['node', 'site', 'ramdisk', 'node-tenant']),
    provisionState: z.enum(['adopting', 'ready', 'retired']),
    maintenance: z.boolean(),
    cordoned: z.boolean(),
    cordonReason: z.string().optional(),
    connectivity: z.enum(['never', 'connected', 'unreachable']),
    connectivityAt: instant,
    conditions: z.array(Condition),
    schedulable: z.boolean().meta({ description: 'Whether new work may land here' }),
    reasons: z.array(z.string()).meta({ description: 'Why not, when it may not' }),
    hardware: z.record(z.string(), z.unknown()).meta({ description: 'Summary of the inventory' }),
    hardwareKeyTrusted: z.boolean(),
    labels,
    epoch: z.number().int().meta({ description: 'Rises with every session' }),
    specGeneration: z.number().int().meta({ description: 'Generation of the desired state' }),
    observedGeneration: z.number().int().meta({ description: 'Generation that the machine has converged' }),
    bcdVersion: z.string().optional(),
    version,
    joinedAt: instant,
    createdAt: instant,
  })
  .meta({ id: 'Node' });

const resource = 'compute-node';

export const nodeOperations = {
  'nodes.list': operation({
    name: 'nodes.list',
    method: 'get',
    path: '/v1/nodes',
    query: listQuery({
      poolId: id('pool').optional(),
      class: deviceClass.optional().meta({ description: 'Only nodes with devices of this class' }),
      schedulable: z.enum(['true', 'false']).optional(),
    }),
    output: page(Node),
    successStatus: 200,
    iam: { action: 'compute:nodes:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'name', 'poolId', 'connectivity', 'schedulable', 'reasons', 'conditions'],
    help: 'List your nodes',
  }),
  'nodes.get': operation({
    name: 'nodes.get',
    method: 'get',
    path: '/v1/nodes/{id}',
    params: itemParams('node'),
    output: Node,
    successStatus: 200,
    iam: { action: 'compute:nodes:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    etag: true,
    help: 'Show a node with its conditions and why it takes no work',
  }),
  'nodes.cordon': operation({
    name: 'nodes.cordon',
    method: 'post',
    path: '/v1/nodes/{id}/cordon',
    params: itemParams('node'),
    body: z.strictObject({
      reason: z
        .string()
        .min(1)
        .max(255)
        .optional()
        .meta({ description: 'Shown to whoever asks why the node takes no work' }),
    }),
    output: Node,
    successStatus: 200,
    iam: { action: 'compute:nodes:cordon', resource, on: 'item' },
    errors: ['NOT_FOUND', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Stop new placements on a node; what runs there goes on',
  }),
  'nodes.uncordon': operation({
    name: 'nodes.uncordon',
    method: 'post',
    path: '/v1/nodes/{id}/uncordon',
    params: itemParams('node'),
    output: Node,
    successStatus: 200,
    iam: { action: 'compute:nodes:uncordon', resource, on: 'item' },
    errors: ['NOT_FOUND', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Allow new placements on a node again',
  }),
} as const;
