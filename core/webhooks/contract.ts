/** Webhooks: who wants to hear what, and how each delivery went. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { id, instant, itemParams, listQuery, nothing, page, tenantId, version } from '../kernel/schemas.ts';

const url = z.url().max(2048).meta({ description: 'Where to POST; https', example: 'https://example.com/hooks' });
const eventTypes = z
  .array(
    z
      .string()
      .regex(
        /^(\*|[a-z_]+\.(\*|[a-z_]+))$/,
        'expected "*", a family such as "reservation.*", or a type such as "reservation.booked"',
      ),
  )
  .min(1)
  .max(64)
  .meta({ description: 'Event types, `reservation.*` for a family, `*` for all' });

export const Webhook = z
  .object({
    id: id('webhook'),
    tenantId,
    url,
    eventTypes,
    enabled: z.boolean(),
    disabledReason: z.string().optional(),
    version,
    createdAt: instant,
    updatedAt: instant,
    secret: z
      .string()
      .optional()
      .meta({ description: 'Standard Webhooks secret (whsec_…); shown once, by create and rotateSecret alone' }),
  })
  .meta({ id: 'Webhook' });

export const WebhookCreate = z.strictObject({
  url,
  eventTypes: eventTypes.default(['*']),
  enabled: z.boolean().default(true),
});
export const WebhookUpdate = z.strictObject({
  url: url.optional(),
  eventTypes: eventTypes.optional(),
  enabled: z.boolean().optional(),
});

export const Delivery = z
  .object({
    id: id('delivery'),
    webhookId: id('webhook'),
    eventId: id('event'),
    eventType: z.string(),
    state: z.enum(['pending', 'delivered', 'dead']),
    attempt: z.number().int().meta({ description: 'Attempts made' }),
    nextAttemptAt: instant.optional(),
    responseStatus: z.number().int().optional(),
    responseExcerpt: z.string().optional().meta({ description: 'Beginning of the last answer, made safe to show' }),
    createdAt: instant,
  })
  .meta({ id: 'Delivery' });

const resource = 'compute-webhook';

export const webhookOperations = {
  'webhooks.create': operation({
    name: 'webhooks.create',
    method: 'post',
    path: '/v1/webhooks',
    body: WebhookCreate,
    output: Webhook,
    successStatus: 201,
    iam: { action: 'compute:webhooks:create', resource, on: 'collection' },
    errors: ['CONFLICT'],
    idempotent: true,
    help: 'Have events sent to a URL; the signing secret is shown once',
  }),
  'webhooks.get': operation({
    name: 'webhooks.get',
    method: 'get',
    path: '/v1/webhooks/{id}',
    params: itemParams('webhook'),
    output: Webhook,
    successStatus: 200,
    iam: { action: 'compute:webhooks:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    etag: true,
    help: 'Show a webhook, without its secret',
  }),
  'webhooks.list': operation({
    name: 'webhooks.list',
    method: 'get',
    path: '/v1/webhooks',
    query: listQuery({}),
    output: page(Webhook),
    successStatus: 200,
    iam: { action: 'compute:webhooks:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'url', 'eventTypes', 'enabled', 'disabledReason'],
    help: 'List your webhooks',
  }),
  'webhooks.update': operation({
    name: 'webhooks.update',
    method: 'patch',
    path: '/v1/webhooks/{id}',
    params: itemParams('webhook'),
    body: WebhookUpdate,
    output: Webhook,
    successStatus: 200,
    iam: { action: 'compute:webhooks:update', resource, on: 'item' },
    errors: ['NOT_FOUND', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Change URL or event types of a webhook, or enable it again',
  }),
  'webhooks.delete': operation({
    name: 'webhooks.delete',
    method: 'delete',
    path: '/v1/webhooks/{id}',
    params: itemParams('webhook'),
    output: nothing,
    successStatus: 200,
    iam: { action: 'compute:webhooks:delete', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: true,
    help: 'Delete a webhook with its deliveries',
  }),
  'webhooks.rotateSecret': operation({
    name: 'webhooks.rotateSecret',
    method: 'post',
    path: '/v1/webhooks/{id}/rotate-secret',
    params: itemParams('webhook'),
    output: Webhook,
    successStatus: 200,
    iam: { action: 'compute:webhooks:rotateSecret', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: true,
    help: 'Make a new signing secret; the old one signs beside it for 24 hours',
  }),
  'webhooks.test': operation({
    name: 'webhooks.test',
    method: 'post',
    path: '/v1/webhooks/{id}/test',
    params: itemParams('webhook'),
    output: Delivery,
    successStatus: 200,
    iam: { action: 'compute:webhooks:test', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT'],
    idempotent: true,
    help: 'Send a test event to a webhook',
  }),
  'webhooks.deliveries': operation({
    name: 'webhooks.deliveries',
    method: 'get',
    path: '/v1/webhooks/{id}/deliveries',
    params: itemParams('webhook'),
    query: listQuery({ state: Delivery.shape.state.optional() }),
    output: page(Delivery),
    successStatus: 200,
    iam: { action: 'compute:webhooks:deliveries', resource, on: 'item' },
    errors: ['NOT_FOUND', 'INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'eventType', 'state', 'attempt', 'responseStatus', 'nextAttemptAt'],
    help: 'List the deliveries of a webhook with their last answers',
  }),
  'webhooks.redeliver': operation({
    name: 'webhooks.redeliver',
    method: 'post',
    path: '/v1/webhooks/deliveries/{id}/redeliver',
    params: itemParams('delivery'),
    output: Delivery,
    successStatus: 200,
    iam: { action: 'compute:webhooks:redeliver', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT'],
    idempotent: true,
    help: 'Send a delivery again, under the same event id',
  }),
} as const;
