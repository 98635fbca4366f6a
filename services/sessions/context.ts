/** Under whose name sessions are written. */
import type { Database } from '#core/kernel/database.ts';
import type { MutationContext } from '#db/mutate.ts';

/** One gateway process. */
export interface GatewayContext {
  readonly db: Database;
  readonly gatewayId: string;
  readonly poke?: MutationContext['poke'];
}

/** `epoch`: of the gateway's lease, where a gateway that lost it must not write. */
export function mutationOf(ctx: GatewayContext, epoch?: number): MutationContext {
  return {
    db: ctx.db,
    actor: 'gateway',
    admission: { system: `gateway:${ctx.gatewayId}` },
    ...(epoch === undefined ? {} : { fence: { name: `gateway:${ctx.gatewayId}`, epoch } }),
    ...(ctx.poke === undefined ? {} : { poke: ctx.poke }),
  };
}
