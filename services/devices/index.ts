/** Devices: the only door to this folder. */
import type { deviceOperations } from '#core/devices/contract.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { type After, keysetOrder, keysetPage, requireCollection } from '../verbs.ts';

type View = Output<(typeof deviceOperations)['devices.list']>['items'][number];

interface DeviceRow extends Record<string, unknown> {
  readonly id: string;
  readonly created_at: Instant;
  readonly view: View;
}

export const handlers: Handlers<typeof deviceOperations> = {
  async 'devices.list'(ctx, input) {
    await requireCollection(ctx, 'compute:devices:list', 'compute-device');
    const { cmp, dir } = keysetOrder(input.order);
    const fetch = (after: After | undefined, limit: number) =>
      read<DeviceRow>(
        ctx.db,
        `select d.id, d.created_at, jsonb_strip_nulls(jsonb_build_object('id', d.id, 'nodeId', d.node_id, 'poolId', d.pool_id,
           'class', d.class, 'stableId', d.stable_id, 'slot', d.slot, 'attributes', d.attributes, 'bookable', d.bookable,
           'health', d.health, 'healthReason', d.health_reason, 'present', d.present, 'allocationId', d.allocation_id)) as view
         from devices d join nodes n on n.id = d.node_id
         where n.tenant_id = $1 and ($2::text is null or d.pool_id = $2) and ($3::text is null or d.node_id = $3)
           and ($4::text is null or d.class = $4)
           and ($5::boolean is null or $5 = (n.schedulable and d.bookable and d.present and d.health = 'healthy' and d.allocation_id is null))
           and ($6::timestamptz is null or (d.created_at, d.id) ${cmp} ($6, $7))
         order by d.created_at ${dir}, d.id ${dir} limit $8`,
        [
          ctx.caller.tenantId,
          input.poolId ?? null,
          input.nodeId ?? null,
          input.class ?? null,
          input.free === undefined ? null : input.free === 'true',
          after?.at ?? null,
          after?.id ?? null,
          limit,
        ],
      );
    return keysetPage(ctx, 'devices.list', input, fetch, (row) => row.view);
  },
};
