/** Usage as a tenant reads it. Writing it is services/metering. */
import type { Output } from '#core/kernel/operations.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { usageOperations } from '#core/usage/contract.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { type After, keysetOrder, keysetPage, requireCollection } from '../verbs.ts';

type View = Output<(typeof usageOperations)['usage.list']>;

interface UsageRowSql extends Record<string, unknown> {
  /** The hour, under the name that paging goes by. */
  readonly created_at: Instant;
  readonly id: string;
  readonly view: View['items'][number];
}

const WHERE = `where tenant_id = $1 and ($2::timestamptz is null or hour >= $2) and ($3::timestamptz is null or hour < $3)
  and ($4::text is null or reservation_id = $4) and ($5::text is null or meter = $5)`;

export const handlers: Handlers<typeof usageOperations> = {
  async 'usage.list'(ctx, input) {
    await requireCollection(ctx, 'compute:usage:list', 'compute-usage');
    const filter = [
      ctx.caller.tenantId,
      input.from ?? null,
      input.to ?? null,
      input.reservationId ?? null,
      input.meter ?? null,
    ];
    const { cmp, dir } = keysetOrder(input.order);
    const fetch = (after: After | undefined, limit: number) =>
      read<UsageRowSql>(
        ctx.db,
        `select hour as created_at, allocation_id || '/' || meter as id, jsonb_build_object('reservationId', reservation_id,
           'allocationId', allocation_id, 'poolId', pool_id, 'meter', meter, 'hour', instant(hour), 'deviceSeconds', device_seconds,
           'sealed', sealed) as view
         from usage_windows ${WHERE} and ($6::timestamptz is null or (hour, allocation_id || '/' || meter) ${cmp} ($6, $7))
         order by hour ${dir}, allocation_id || '/' || meter ${dir} limit $8`,
        [...filter, after?.at ?? null, after?.id ?? null, limit],
      );
    const [page, sums] = await Promise.all([
      keysetPage(ctx, 'usage.list', input, fetch, (row) => row.view),
      read<{ meter: string; seconds: number; hours: string }>(
        ctx.db,
        `select meter, sum(device_seconds)::bigint as seconds, round(sum(device_seconds) / 3600.0, 4)::text as hours
         from usage_windows ${WHERE} group by meter order by meter`,
        filter,
      ),
    ]);
    return { ...page, sums: sums.map((s) => ({ meter: s.meter, deviceSeconds: s.seconds, hours: s.hours })) };
  },
};
