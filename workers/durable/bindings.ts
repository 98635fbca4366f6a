/** What the Durable Objects and the webhook fan-out need of the Worker's environment. */
import { type NeonDatabase, openNeon } from '#plugins/database/neon.ts';
import type { DueDelivery } from '#services/webhooks/index.ts';
import type { Hub } from './hub.ts';
import type { Lease } from './lease.ts';
import type { Shard } from './shard.ts';

export interface DurableEnv {
  readonly DATABASE_URL: string;
  /** `host:port` of the local Neon proxy; unset in production. */
  readonly PG_PROXY?: string;
  readonly SHARD: DurableObjectNamespace<Shard>;
  readonly LEASE: DurableObjectNamespace<Lease>;
  readonly HUB: DurableObjectNamespace<Hub>;
  /** Ids of due deliveries. */
  readonly WEBHOOK_QUEUE: Queue<DueDelivery>;
  /** `loopback` on one machine in development: webhooks may point to it. */
  readonly ALLOW_PRIVATE_WEBHOOKS?: string;
}

export function openDatabase(env: Pick<DurableEnv, 'DATABASE_URL' | 'PG_PROXY'>): NeonDatabase {
  return openNeon(env.DATABASE_URL, env.PG_PROXY ? { localProxy: env.PG_PROXY } : {});
}
