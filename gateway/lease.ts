/**
 * The gateway's own lease, renewed every five seconds. While the database is away the sessions stay up and the epoch
 * stands: only a newer process with the same id ends it.
 */
import type { Database } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';
import { type GatewayLease, renewGatewayLease, takeGatewayLease, yieldGatewayLease } from '#services/sessions/index.ts';

const LEASE_SECONDS = 20;
const RENEW_MS = 5_000;
const RETRY_MS = 1_000;

export interface LeaseDeps {
  readonly db: Database;
  readonly gatewayId: string;
  readonly clock: Clock;
  readonly onError: (e: unknown) => void;
  /** A newer process has this gateway's id. */
  readonly onFenced: () => void;
  readonly signal: AbortSignal;
}

export class LeaseKeeper {
  private lease: GatewayLease | undefined;
  private renewedAt = Number.NEGATIVE_INFINITY;
  private readonly deps: LeaseDeps;

  constructor(deps: LeaseDeps) {
    this.deps = deps;
  }

  /** Throws UNAVAILABLE before the lease was first taken. */
  epoch(): number {
    if (this.lease !== undefined) return this.lease.epoch;
    throw problem('UNAVAILABLE', 'the gateway has not reached the database yet', { retryAfterSeconds: 2 });
  }

  /** The database confirmed it within the lease's length. */
  get fresh(): boolean {
    return this.deps.clock.now() - this.renewedAt < LEASE_SECONDS * 1000;
  }

  /** Runs until the signal, then gives the lease up. */
  async run(): Promise<void> {
    const { db, gatewayId, clock, signal, onError, onFenced } = this.deps;
    const holder = crypto.randomUUID();
    while (!signal.aborted) {
      let pause = RENEW_MS;
      try {
        if (this.lease === undefined) this.lease = await takeGatewayLease(db, gatewayId, holder, LEASE_SECONDS);
        else if (!(await renewGatewayLease(db, gatewayId, this.lease, LEASE_SECONDS))) return onFenced();
        this.renewedAt = clock.now();
      } catch (e) {
        onError(e);
        pause = RETRY_MS;
      }
      await clock.sleep(pause, signal).catch(() => {});
    }
    if (this.lease !== undefined) await yieldGatewayLease(db, gatewayId, this.lease).catch(onError);
  }
}
