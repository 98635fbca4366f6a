/** What the Durable Objects and the webhook fan-out need of the Worker's environment. */
import { type NeonDatabase, openNeon } from '#plugins/database/neon.ts';
import { CLOCK_SETTINGS, type ClockSettings } from '#services/clock/index.ts';
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
  readonly CLOCK_JUMP_SECONDS?: string;
  readonly CLOCK_SETTLE_SECONDS?: string;
  /** For a remote identity service: the tenant that jumps of the clock are told to. */
  readonly IAM_ROOT_TENANT?: string;
  /** `loopback` on one machine in development: webhooks may point to it. */
  readonly ALLOW_PRIVATE_WEBHOOKS?: string;
}

export function clockWatch(env: DurableEnv): { settings: ClockSettings; tenant?: string } {
  const whole = (text: string | undefined, preset: number, least: number) =>
    Math.max(least, Math.trunc(Number(text)) || preset);
  return {
    settings: {
      jumpSeconds: whole(env.CLOCK_JUMP_SECONDS, CLOCK_SETTINGS.jumpSeconds, 60),
      settleSeconds: whole(env.CLOCK_SETTLE_SECONDS, CLOCK_SETTINGS.settleSeconds, 0),
    },
    ...(env.IAM_ROOT_TENANT ? { tenant: env.IAM_ROOT_TENANT } : {}),
  };
}

export function openDatabase(env: Pick<DurableEnv, 'DATABASE_URL' | 'PG_PROXY'>): NeonDatabase {
  return openNeon(env.DATABASE_URL, env.PG_PROXY ? { localProxy: env.PG_PROXY } : {});
}
