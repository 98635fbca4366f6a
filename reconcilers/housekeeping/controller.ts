/** Moves what is over out of the hot tables, in bounded batches. */
import { again, type Outcome, settled } from '#core/kernel/outcome.ts';
import { tidy } from '#services/housekeeping/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

export const housekeeping: Reconciler = {
  kind: 'housekeeping',
  async run(ctx): Promise<Outcome> {
    return (await tidy(ctx.db)).full ? again('a full batch') : settled;
  },
  sweep: { everySeconds: 60, keys: async () => ['all'] },
};
