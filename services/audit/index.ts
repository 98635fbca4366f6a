/** The audit trail as a tenant reads it. */
import type { auditOperations } from '#core/audit/contract.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { type After, keysetOrder, keysetPage, requireCollection } from '../verbs.ts';

type View = Output<(typeof auditOperations)['audit.list']>['items'][number];

interface AuditRow extends Record<string, unknown> {
  readonly id: string;
  readonly created_at: Instant;
  readonly view: View;
}

export const handlers: Handlers<typeof auditOperations> = {
  async 'audit.list'(ctx, input) {
    await requireCollection(ctx, 'compute:audit:list', 'compute-audit');
    const { cmp, dir } = keysetOrder(input.order);
    const fetch = (after: After | undefined, limit: number) =>
      read<AuditRow>(
        ctx.db,
        `select id, at as created_at, jsonb_build_object('id', id, 'at', instant(at), 'tenantId', tenant_id, 'action', action,
           'resourceType', resource_type, 'resourceId', resource_id, 'outcome', outcome, 'context', context, 'data', data) as view
         from audit_events where tenant_id = $1 and ($2::text is null or resource_id = $2) and ($3::text is null or action = $3)
           and ($4::timestamptz is null or (at, id) ${cmp} ($4, $5))
         order by at ${dir}, id ${dir} limit $6`,
        [
          ctx.caller.tenantId,
          input.resourceId ?? null,
          input.action ?? null,
          after?.at ?? null,
          after?.id ?? null,
          limit,
        ],
      );
    return keysetPage(ctx, 'audit.list', input, fetch, (row) => row.view);
  },
};
