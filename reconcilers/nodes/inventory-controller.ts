/** Looks at a node's stored inventory again when something in it ends by itself, such as a transient driver error. */
import { type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { reviewStoredInventory } from '#services/sessions/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

export const nodeInventory: Reconciler = {
  kind: 'nodes.inventory',
  async run(ctx, nodeId): Promise<Outcome> {
    const next = await reviewStoredInventory(ctx, nodeId);
    return next === undefined ? settled : wait('a driver error has not been quiet for long enough', next);
  },
};
