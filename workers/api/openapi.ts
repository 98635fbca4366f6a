/** The OpenAPI document, from the table of operations. */
import { OpenAPIHono, z } from '@hono/zod-openapi';
import { ERRORS, type ErrorCode } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { OPERATIONS } from '#core/operations.ts';

/** Errors that any operation can answer, whatever its row says. */
const ALWAYS: readonly ErrorCode[] = [
  'INVALID_REQUEST',
  'UNAUTHENTICATED',
  'PERMISSION_DENIED',
  'RATE_LIMITED',
  'INTERNAL',
  'UNAVAILABLE',
];

const Problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]),
    detail: z.string(),
    wayOut: z.string(),
    retry: z.enum(['never', 'same-key', 'after']),
    requestId: z.string().optional(),
    errors: z.array(z.object({ field: z.string(), message: z.string() })).optional(),
  })
  .meta({ id: 'Problem' });

function responsesOf(o: Operation) {
  const byStatus = new Map<number, ErrorCode[]>();
  const idempotency: ErrorCode[] = o.idempotent ? ['IDEMPOTENCY_KEY_REQUIRED', 'IDEMPOTENCY_MISMATCH'] : [];
  for (const code of new Set([...o.errors, ...idempotency, ...ALWAYS])) {
    const status = ERRORS[code].http;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const problems = [...byStatus].map(([status, codes]) => [
    status,
    { description: codes.join(', '), content: { 'application/problem+json': { schema: Problem } } },
  ]);
  const type = o.stream === 'sse' ? 'text/event-stream' : 'application/json';
  return {
    [o.successStatus]: { description: 'Done', content: { [type]: { schema: o.output } } },
    ...Object.fromEntries(problems),
  };
}

const headers = z.object({
  'Idempotency-Key': z
    .string()
    .min(1)
    .max(255)
    .meta({ description: 'A fresh one for each new request, the same when it is repeated' }),
});

/** Plain data; the same for the same table. `url` is where the API answers. */
export function openApiDocument(url: string): object {
  const documented = new OpenAPIHono();
  const registry = documented.openAPIRegistry;
  registry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer' });
  for (const o of Object.values(OPERATIONS) as unknown as Operation[]) {
    registry.registerPath({
      method: o.method,
      path: o.path,
      operationId: o.name,
      summary: o.help,
      tags: [o.name.split('.')[0]!],
      security: [{ bearer: [] }],
      'x-iam-action': o.iam.action,
      request: {
        ...(o.params === undefined ? {} : { params: o.params }),
        ...(o.query === undefined ? {} : { query: o.query }),
        ...(o.idempotent ? { headers } : {}),
        ...(o.body === undefined
          ? {}
          : { body: { required: true, content: { 'application/json': { schema: o.body } } } }),
      },
      responses: responsesOf(o),
    } as Parameters<typeof registry.registerPath>[0]);
  }
  return documented.getOpenAPI31Document({
    openapi: '3.1.0',
    info: {
      title: 'Better Compute',
      version: '1',
      description: 'Reserve devices of GPU machines. Errors are RFC 9457 problems with a stable `code`.',
      license: { name: 'Apache-2.0' },
    },
    servers: [{ url }],
  });
}
