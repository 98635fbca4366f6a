/** Reservations: a tenant's claim on devices of one pool for a time. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { deviceClass, id, instant, itemParams, labels, listQuery, name, page, tenantId } from '../kernel/schemas.ts';

export const DEVICES_MAX = 64;
export const DURATION_SECONDS_MIN = 60;
export const DURATION_SECONDS_MAX = 366 * 86_400;
/** How far ahead a window may begin. */
export const START_SECONDS_MAX = 366 * 86_400;
export const GANG_NODES_MIN = 2;
export const GANG_NODES_MAX = 64;

const attribute = z.string().min(1).max(63).meta({ description: 'Name of a device attribute', example: 'model' });
const scalar = z.union([z.string().max(255), z.number(), z.boolean()]);
const bound = z.union([z.number(), z.string().regex(/^\d+(\.\d+)*$/, 'expected a number or a dotted version')]);

export const SelectorSchema = z
  .discriminatedUnion('op', [
    z.strictObject({ attribute, op: z.literal('equals'), value: scalar }),
    z.strictObject({ attribute, op: z.literal('in'), values: z.array(scalar).min(1).max(64) }),
    z
      .strictObject({ attribute, op: z.literal('range'), min: bound.optional(), max: bound.optional() })
      .refine((r) => r.min !== undefined || r.max !== undefined, 'give min, max or both'),
    z.strictObject({ attribute, op: z.literal('exists'), value: z.boolean().default(true) }),
  ])
  .meta({ id: 'Selector', description: 'A condition on a typed attribute of the device; both ends of a range count' });

export const DeviceRequest = z
  .strictObject({
    class: deviceClass,
    count: z.number().int().min(1).max(DEVICES_MAX).meta({ description: 'Devices on one node' }),
    selectors: z.array(SelectorSchema).max(16).optional(),
  })
  .meta({ id: 'DeviceRequest' });

const durationSeconds = z
  .number()
  .int('expected whole seconds')
  .min(DURATION_SECONDS_MIN)
  .max(DURATION_SECONDS_MAX)
  .meta({ description: 'Whole seconds, 60 to 366 days; a day is 86,400 seconds', example: 3600 });

export const Gang = z
  .strictObject({
    nodes: z
      .number()
      .int()
      .min(GANG_NODES_MIN)
      .max(GANG_NODES_MAX)
      .meta({ description: 'Whole nodes, placed all or none' }),
    sameLabel: z
      .string()
      .min(1)
      .max(63)
      .optional()
      .meta({ description: 'All on nodes with one value of this label', example: 'fabric.domain' }),
    replace: z
      .boolean()
      .default(true)
      .meta({ description: 'Whether a node that goes bad before the start is replaced, the others kept' }),
  })
  .meta({ id: 'Gang' });

/** What is wanted, and when: what an admission and a question about capacity have in common. */
export const asked = {
  poolId: id('pool'),
  devices: z
    .array(DeviceRequest)
    .min(1)
    .max(16)
    .refine((d) => d.reduce((a, x) => a + x.count, 0) <= DEVICES_MAX, `at most ${DEVICES_MAX} devices in all`)
    .meta({
      description:
        'What is wanted, all on one node; of a gang, what each node must have at least, and is then booked whole',
    }),
  gang: Gang.optional(),
  start: instant
    .optional()
    .meta({ description: 'When the window begins: UTC, at most 366 days ahead; at once where it is not given' }),
  durationSeconds,
};
export const WHOLE_NODES = {
  path: ['devices'],
  message: 'a gang takes whole nodes: selectors on devices have no place in it',
};
/** False for a gang that asks for single devices of its nodes. */
export const wholeNodes = (r: { gang?: unknown; devices: readonly { selectors?: readonly unknown[] | undefined }[] }) =>
  r.gang === undefined || !r.devices.some((d) => d.selectors !== undefined && d.selectors.length > 0);

export const ReservationCreate = z
  .strictObject({
    ...asked,
    spot: z.boolean().default(false).meta({
      description:
        "Cheaper, and gives way with the pool's notice when a request that is not spot finds its devices nowhere else",
    }),
    leaseSeconds: z
      .number()
      .int('expected whole seconds')
      .min(10)
      .max(86_400)
      .optional()
      .meta({ description: 'Released unless renewed within every such period' }),
    binding: z.enum(['hold']).default('hold').meta({ description: 'hold: the node names the devices in a CDI spec' }),
    name: name.optional(),
    labels: labels.optional(),
  })
  .refine(wholeNodes, WHOLE_NODES)
  .refine((r) => !r.spot || (r.gang === undefined && r.start === undefined), {
    path: ['spot'],
    message: 'takes what is free now on one node: neither a gang nor a start',
  })
  .meta({ id: 'ReservationCreate' });

export const Reservation = z
  .object({
    id: id('reservation'),
    tenantId,
    poolId: id('pool'),
    name: name.optional(),
    labels,
    state: z.enum(['draft', 'scheduled', 'booked', 'active', 'releasing', 'released', 'abandoned']),
    reason: z.string().optional().meta({ description: 'Why it is in this state, where there is more to say' }),
    binding: z.enum(['hold']),
    devices: z.array(DeviceRequest),
    gang: Gang.optional(),
    spot: z.boolean().optional(),
    preemptedAt: instant.optional().meta({ description: 'When it was told to give way; it ends at endsAt' }),
    allocations: z.array(
      z.object({
        id: id('allocation'),
        nodeId: id('node'),
        nodeName: z.string(),
        devices: z.array(z.object({ id: id('device'), class: deviceClass, stableId: z.string() })),
      }),
    ),
    durationSeconds: z.number().int(),
    leaseSeconds: z.number().int().optional(),
    startsAt: instant.optional(),
    endsAt: instant.optional(),
    leaseExpiresAt: instant.optional(),
    createdAt: instant,
    activatedAt: instant.optional(),
    releasedAt: instant.optional(),
    version: z.number().int(),
  })
  .meta({ id: 'Reservation' });

export const Explanation = z
  .object({
    id: id('reservation'),
    state: z.string(),
    since: instant,
    waitingFor: z.string().optional().meta({ description: 'What it waits for now, in words' }),
    reasons: z.array(
      z.object({ code: z.string(), message: z.string(), nodes: z.number().int(), example: z.string().optional() }),
    ),
    history: z.array(
      z.object({
        event: z.string(),
        from: z.string(),
        to: z.string(),
        actor: z.string(),
        reason: z.string().optional(),
        at: instant,
      }),
    ),
  })
  .meta({ id: 'Explanation' });

const resource = 'compute-reservation';

export const reservationOperations = {
  'reservations.create': operation({
    name: 'reservations.create',
    method: 'post',
    path: '/v1/reservations',
    body: ReservationCreate,
    output: Reservation,
    successStatus: 201,
    iam: { action: 'compute:reservations:create', resource, on: 'draft' },
    errors: ['NOT_FOUND', 'CAPACITY_UNAVAILABLE', 'QUOTA_EXCEEDED', 'CONFIRMATION_REQUIRED', 'CONTENTION'],
    idempotent: true,
    help: 'Reserve devices of one node, or whole nodes as a gang, now or from a start',
  }),
  'reservations.get': operation({
    name: 'reservations.get',
    method: 'get',
    path: '/v1/reservations/{id}',
    params: itemParams('reservation'),
    output: Reservation,
    successStatus: 200,
    iam: { action: 'compute:reservations:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    help: 'Show a reservation with its devices',
  }),
  'reservations.list': operation({
    name: 'reservations.list',
    method: 'get',
    path: '/v1/reservations',
    query: listQuery({ poolId: id('pool').optional(), state: Reservation.shape.state.optional() }),
    output: page(Reservation),
    successStatus: 200,
    iam: { action: 'compute:reservations:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'name', 'state', 'devices', 'poolId', 'endsAt', 'reason'],
    help: 'List your reservations',
  }),
  'reservations.renew': operation({
    name: 'reservations.renew',
    method: 'post',
    path: '/v1/reservations/{id}/renew',
    params: itemParams('reservation'),
    body: z.strictObject({
      durationSeconds: durationSeconds
        .optional()
        .meta({ description: 'Move the end to so many seconds from now; never moves it closer' }),
    }),
    output: Reservation,
    successStatus: 200,
    iam: { action: 'compute:reservations:renew', resource, on: 'item' },
    errors: ['NOT_FOUND', 'ILLEGAL_TRANSITION', 'CONTENTION'],
    idempotent: true,
    help: 'Start the lease anew, and prolong the reservation when durationSeconds is given',
  }),
  'reservations.release': operation({
    name: 'reservations.release',
    method: 'post',
    path: '/v1/reservations/{id}/release',
    params: itemParams('reservation'),
    output: Reservation,
    successStatus: 200,
    iam: { action: 'compute:reservations:release', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONTENTION'],
    idempotent: true,
    help: 'Give the devices back; asking again changes nothing',
  }),
  'reservations.explain': operation({
    name: 'reservations.explain',
    method: 'get',
    path: '/v1/reservations/{id}/explain',
    params: itemParams('reservation'),
    output: Explanation,
    successStatus: 200,
    iam: { action: 'compute:reservations:explain', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    help: 'Say what a reservation waits for, and how it came to where it is',
  }),
} as const;
