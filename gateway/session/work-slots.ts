/**
 * A bound on what goes to the database at once, with a bounded queue before it. Who finds the queue full is told when
 * the next slot is likely to be free, instead of a random delay.
 */
import { problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';

export class WorkSlots {
  private running = 0;
  private readonly waiting: (() => void)[] = [];
  /** Milliseconds that a piece of work takes, as a moving average. */
  private averageMs = 20;
  private refused = 0;
  private readonly slots: number;
  private readonly queueMax: number;
  private readonly clock: Clock;

  constructor(slots: number, queueMax: number, clock: Clock) {
    this.slots = slots;
    this.queueMax = queueMax;
    this.clock = clock;
  }

  get queued(): number {
    return this.waiting.length;
  }

  /** Throws RATE_LIMITED at once when the queue is full. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.running >= this.slots) {
      if (this.waiting.length >= this.queueMax) {
        this.refused++;
        const ahead = (this.waiting.length + this.refused) / this.slots;
        throw problem('RATE_LIMITED', 'the gateway has as much to do as it can take', {
          retryAfterSeconds: Math.min(60, Math.max(0.5, (ahead * this.averageMs) / 1000)),
        });
      }
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    } else this.running++;
    const start = this.clock.now();
    try {
      return await work();
    } finally {
      this.averageMs = this.averageMs * 0.9 + Math.max(0, this.clock.now() - start) * 0.1;
      // The slot goes over to the next in line without becoming free in between.
      const next = this.waiting.shift();
      if (next === undefined) {
        this.running--;
        this.refused = 0;
      } else next();
    }
  }
}
