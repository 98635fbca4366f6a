/**
 * At most so many at once, at most so many waiting; the rest is turned away at once. Past some four connections a core
 * a database gets slower with every one, so admissions queue here, in front of it.
 *
 * Made for workerd, where a request may end at any await without another line of it run (its caller hung up), and is
 * killed as hung when all that it waits for is in another request's hands. So a place is held until a time, not until
 * a `finally`; who waits looks for a free place by its own timer, which a call only shortens; and who has not looked for
 * a while is gone.
 */
import { problem } from '#core/kernel/errors.ts';
import { type Clock, systemClock } from '#core/kernel/time.ts';

export interface SemaphoreOptions {
  readonly atOnce: number;
  readonly waitingMax: number;
  /** How long one may wait, and how long one may hold its place, in milliseconds. */
  readonly waitMs: number;
  readonly holdMs: number;
  readonly clock?: Clock;
}

const LOOK_EVERY_MS = 250;
const GONE_MS = 750;

export class Semaphore {
  readonly #o: SemaphoreOptions;
  readonly #clock: Clock;
  /** Who is inside, and until when at the latest. */
  readonly #inside = new Map<symbol, number>();
  /** Who waits, in order of arrival, when it last looked, and how to call it. */
  readonly #waiting = new Map<symbol, { looked: number; readonly call: () => void }>();

  constructor(options: SemaphoreOptions) {
    this.#o = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Throws UNAVAILABLE when too many wait, or when no place was free in time. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const me = Symbol();
    if (!this.#enter(me)) await this.#turn(me);
    try {
      return await work();
    } finally {
      this.#inside.delete(me);
      this.#callNext();
    }
  }

  #enter(me: symbol): boolean {
    const now = this.#clock.now();
    forget(this.#inside, (until) => until <= now);
    if (!this.#inside.has(me) && this.#inside.size >= this.#o.atOnce) return false;
    this.#inside.set(me, now + this.#o.holdMs);
    return true;
  }

  async #turn(me: symbol): Promise<void> {
    const began = this.#clock.now();
    forget(this.#waiting, ({ looked }) => looked < began - GONE_MS);
    if (this.#waiting.size >= this.#o.waitingMax) throw full('more requests wait than can be served soon');
    let called = new Promise<void>((call) => this.#waiting.set(me, { looked: began, call }));
    try {
      for (;;) {
        await Promise.race([called, this.#clock.sleep(LOOK_EVERY_MS)]);
        if (this.#enter(me)) return;
        const now = this.#clock.now();
        if (now >= began + this.#o.waitMs) throw full('no place was free in time');
        const still = this.#waiting.get(me);
        if (still !== undefined) still.looked = now;
        // Called, and too late: the place was given away.
        else called = new Promise<void>((call) => this.#waiting.set(me, { looked: now, call }));
      }
    } finally {
      this.#waiting.delete(me);
    }
  }

  /** Keeps the place for the one that waits longest, briefly: it may be gone. */
  #callNext(): void {
    const now = this.#clock.now();
    forget(this.#waiting, ({ looked }) => looked < now - GONE_MS);
    const next = this.#waiting.entries().next();
    if (next.done === true || this.#inside.size >= this.#o.atOnce) return;
    const [who, { call }] = next.value;
    this.#waiting.delete(who);
    this.#inside.set(who, now + GONE_MS);
    call();
  }
}

function forget<V>(map: Map<symbol, V>, gone: (value: V) => boolean): void {
  for (const [who, value] of map) if (gone(value)) map.delete(who);
}

const full = (why: string) => problem('UNAVAILABLE', why, { retryAfterSeconds: 1 });
