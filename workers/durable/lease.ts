/**
 * `Lease`: one object a lease name. It only orders the contenders before Postgres, which decides and fences: a holder
 * writes under the epoch it was given, and the row refuses an older one. Nothing is answered from memory.
 */
import { DurableObject } from 'cloudflare:workers';
import { problem } from '#core/kernel/errors.ts';
import { acquireLease, type HeldLease, releaseLease } from '#db/leases.ts';
import { type DurableEnv, openDatabase } from './bindings.ts';

const SECONDS_MAX = 300;
const WAITING_MAX = 256;

export class Lease extends DurableObject<DurableEnv> {
  readonly #db = openDatabase(this.env);
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Takes the lease, or prolongs it under the same epoch; undefined when somebody else holds it. */
  acquire(name: string, holder: string, seconds: number): Promise<HeldLease | undefined> {
    return this.#inOrder(() => acquireLease(this.#db, name, holder, bounded(seconds)));
  }

  /** Prolongs the lease if it is still held under this epoch. Undefined: it is lost, stop acting under it. */
  renew(lease: HeldLease, seconds: number): Promise<HeldLease | undefined> {
    return this.#inOrder(async () => {
      const renewed = await acquireLease(this.#db, lease.name, lease.holder, bounded(seconds));
      if (renewed === undefined || renewed.epoch === lease.epoch) return renewed;
      // It had run out: what was taken just now is a new tenure, which nobody asked for.
      await releaseLease(this.#db, renewed);
      return undefined;
    });
  }

  release(lease: HeldLease): Promise<void> {
    return this.#inOrder(() => releaseLease(this.#db, lease));
  }

  /** One after the other, so that a thousand contenders cost one row lock at a time. */
  async #inOrder<T>(work: () => Promise<T>): Promise<T> {
    if (this.#waiting >= WAITING_MAX) {
      throw problem('UNAVAILABLE', 'too many ask for this lease', { retryAfterSeconds: 2 });
    }
    this.#waiting++;
    const mine = this.#last.then(work);
    this.#last = mine.catch(() => {});
    try {
      return await mine;
    } finally {
      this.#waiting--;
    }
  }
}

function bounded(seconds: number): number {
  return Math.min(SECONDS_MAX, Math.max(1, Math.ceil(seconds)));
}
