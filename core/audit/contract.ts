/** The audit trail: who was allowed to change what, and under which admission context. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { id, instant, listQuery, page, tenantId } from '../kernel/schemas.ts';

export const AuditRecord = z
  .object({
    id: id('audit'),
    at: instant,
    tenantId,
    action: z.string().meta({ example: 'compute:reservations:create' }),
    resourceType: z.string(),
    resourceId: z.string(),
    outcome: z.enum(['allow', 'deny', 'system']),
    context: z
      .record(z.string(), z.unknown())
      .meta({ description: 'Identity, session kind, agent, delegation, request id' }),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: 'AuditRecord' });

export const auditOperations = {
  'audit.list': operation({
    name: 'audit.list',
    method: 'get',
    path: '/v1/audit',
    query: listQuery({ resourceId: z.string().max(128).optional(), action: z.string().max(128).optional() }),
    output: page(AuditRecord),
    successStatus: 200,
    iam: { action: 'compute:audit:list', resource: 'compute-audit', on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['at', 'action', 'resourceId', 'outcome', 'context'],
    help: 'List the changes that were admitted in your tenant',
  }),
} as const;
