/**
 * At most so many at once, at most so many waiting; the rest is turned away at once. Past some four connections a core
 * a database gets slower with every one, so admissions queue here, in front of it.
 */
import { problem } from '#core/kernel/errors.ts';

export class Semaphore {
  #free: number;
  readonly #waiting: (() => void)[] = [];
  readonly #waitingMax: number;

  constructor(atOnce: number, waitingMax: number) {
    this.#free = atOnce;
    this.#waitingMax = waitingMax;
  }

  /** Throws UNAVAILABLE when the queue is full. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else {
      if (this.#waiting.length >= this.#waitingMax) {
        throw problem('UNAVAILABLE', 'more requests wait than can be served soon', { retryAfterSeconds: 1 });
      }
      await new Promise<void>((turn) => this.#waiting.push(turn));
    }
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }
}
