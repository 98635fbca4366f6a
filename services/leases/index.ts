/** Leases, for the operators of the platform. */
import type { Instant } from '#core/kernel/time.ts';
import type { leaseOperations } from '#core/leases/contract.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { requirePlatform } from '../verbs.ts';

interface LeaseRow extends Record<string, unknown> {
  readonly name: string;
  readonly holder: string;
  readonly epoch: number;
  readonly acquired_at: Instant;
  readonly expires_at: Instant;
  readonly held: boolean;
}

const LEASES_MAX = 1000;

export const handlers: Handlers<typeof leaseOperations> = {
  async 'leases.list'(ctx, input) {
    await requirePlatform(ctx, 'compute:leases:list', { type: 'compute-work', id: '*' });
    const rows = await read<LeaseRow>(
      ctx.db,
      `select name, holder, epoch, acquired_at, expires_at, expires_at > compute_now() as held from leases
       where starts_with(name, $1) order by name limit $2`,
      [input.prefix ?? '', LEASES_MAX],
    );
    return {
      items: rows.map((l) => ({
        name: l.name,
        holder: l.holder,
        epoch: l.epoch,
        acquiredAt: l.acquired_at,
        expiresAt: l.expires_at,
        held: l.held,
      })),
    };
  },
};
