/** Writes each allocation's usage windows while it lasts, and a last time when it ended. */
import { gone, type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { meter } from '#services/metering/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

export const usage: Reconciler = {
  kind: 'usage',
  async run(ctx, allocationId): Promise<Outcome> {
    const metered = await meter(ctx, allocationId);
    if (metered === undefined) return gone;
    // Activation wakes it again.
    if (metered.over || metered.next === undefined) return settled;
    return wait('metered; next reading', metered.next);
  },
};
