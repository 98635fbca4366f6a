/** Events: what happened in a tenant, as history and as a live stream. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { id, instant } from '../kernel/schemas.ts';

const types = z
  .string()
  .max(1024)
  .optional()
  .meta({ description: 'Event types, separated by commas; `reservation.*` for a family', example: 'reservation.*' });

export const Event = z
  .object({
    id: id('event'),
    type: z.string().meta({ example: 'reservation.booked' }),
    subject: z.object({ kind: z.string(), id: z.string() }),
    at: instant,
    data: z.unknown(),
    cursor: z
      .string()
      .meta({ description: 'Position behind this event: for `cursor`, and for Last-Event-ID of watch' }),
  })
  .meta({ id: 'Event' });

export const eventOperations = {
  'events.list': operation({
    name: 'events.list',
    method: 'get',
    path: '/v1/events',
    query: z.strictObject({
      limit: z.coerce.number().int().min(1).max(200).default(50),
      cursor: z.string().min(1).max(2048).optional().meta({ description: 'Position to go on behind' }),
      types,
    }),
    output: z.object({
      items: z.array(Event),
      nextCursor: z.string().meta({ description: 'Always present: ask again later for what came since' }),
    }),
    successStatus: 200,
    iam: { action: 'compute:events:list', resource: 'compute-event', on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['at', 'type', 'subject', 'id'],
    help: 'List what happened, oldest first; never skips an event',
  }),
  watch: operation({
    name: 'watch',
    method: 'get',
    path: '/v1/watch',
    query: z.strictObject({
      types,
      cursor: z
        .string()
        .min(1)
        .max(2048)
        .optional()
        .meta({ description: 'Position to start behind; the end of the stream otherwise' }),
    }),
    output: Event,
    successStatus: 200,
    iam: { action: 'compute:events:watch', resource: 'compute-event', on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    stream: 'sse',
    help: 'Follow events as they happen (server-sent events; resumes by Last-Event-ID)',
  }),
} as const;
