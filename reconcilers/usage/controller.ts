/** Writes each allocation's usage windows every five minutes, and a last time when it ended. */
import { gone, type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { addSeconds } from '#core/kernel/time.ts';
import { meter } from '#services/metering/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

const METER_SECONDS = 300;

export const usage: Reconciler = {
  kind: 'usage',
  async run(ctx, allocationId): Promise<Outcome> {
    const metered = await meter(ctx, allocationId);
    if (metered === undefined) return gone;
    return metered.ended ? settled : wait('metered; next window', addSeconds(metered.now, METER_SECONDS));
  },
};
