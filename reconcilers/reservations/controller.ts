/** Drives every reservation from draft to released. Observes, asks the pure plan, acts through the service; no more. */
import { again, gone, type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { step } from '#services/reservations/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

export const reservations: Reconciler = {
  kind: 'reservations',
  async run(ctx, id): Promise<Outcome> {
    const taken = await step(ctx, id);
    switch (taken.kind) {
      case 'gone':
        return gone;
      case 'settled':
        return settled;
      case 'waits':
        return wait(taken.reason, taken.recheckAt);
      case 'did':
        return again(taken.what);
    }
  },
};
