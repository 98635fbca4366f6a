/** Keeps each node's NodeSpec equal to what the books say the node holds. */
import { gone, type Outcome, settled } from '#core/kernel/outcome.ts';
import { compose } from '#services/specs/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

export const nodeSpecs: Reconciler = {
  kind: 'nodes.spec',
  async run(ctx, nodeId): Promise<Outcome> {
    return (await compose(ctx, nodeId)) === undefined ? gone : settled;
  },
};
