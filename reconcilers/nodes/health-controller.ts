/** Adopts nodes that converged, and marks as unreachable those whose gateway is gone. */
import { gone, type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { addSeconds } from '#core/kernel/time.ts';
import { assess, loseDeadGateways } from '#services/node-health/index.ts';
import type { Reconciler } from '../runtime/reconciler.ts';

const RECHECK_SECONDS = 30;

export const nodeHealth: Reconciler = {
  kind: 'nodes.health',
  async run(ctx, nodeId): Promise<Outcome> {
    const answer = await assess(ctx, nodeId);
    if (answer.kind === 'gone') return gone;
    return answer.kind === 'settled' ? settled : wait(answer.reason, addSeconds(ctx.now, RECHECK_SECONDS));
  },
};

/** One key for the fleet: a live gateway reports its own losses, this is for the gateway that died with its sessions. */
export const deadGateways: Reconciler = {
  kind: 'gateways.liveness',
  async run(ctx): Promise<Outcome> {
    while ((await loseDeadGateways(ctx)) > 0);
    return settled;
  },
  sweep: { everySeconds: 10, keys: async () => ['all'] },
};
