/**
 * When to try again. Full jitter between a floor and a ceiling that doubles, so that machines that lost the same gateway
 * come back spread; a delay that the gateway asked for is kept to the millisecond, since it has spread them already.
 */
import { type Problem, toProblem } from '#core/kernel/errors.ts';

const FLOOR_MS = 1_000;

export class BackOff {
  private failures = 0;
  private readonly ceilingMs: number;
  private readonly random: () => number;

  constructor(ceilingMs = 30_000, random: () => number = Math.random) {
    this.ceilingMs = ceilingMs;
    this.random = random;
  }

  succeeded(): void {
    this.failures = 0;
  }

  /** `pushbackMs`: what the other side asked for. */
  next(pushbackMs?: number): number {
    this.failures++;
    if (pushbackMs !== undefined && pushbackMs > 0) return pushbackMs;
    const ceiling = Math.min(this.ceilingMs, FLOOR_MS * 2 ** Math.min(this.failures, 20));
    return FLOOR_MS + Math.round(this.random() * (ceiling - FLOOR_MS));
  }
}

/** Whether the same question may get another answer later. */
export function worthRetrying(e: unknown): boolean {
  const p: Problem = toProblem(e);
  return p.spec.retry === 'after' || p.spec.http >= 500;
}
