/** A token bucket as a value of time: no timer of its own, so the same arithmetic serves hosts and tests. */

export class TokenBucket {
  private tokens: number;
  private at: number;
  private readonly ratePerSecond: number;
  private readonly burst: number;

  constructor(ratePerSecond: number, burst: number, nowMs: number) {
    this.ratePerSecond = ratePerSecond;
    this.burst = burst;
    this.tokens = burst;
    this.at = nowMs;
  }

  /** Takes one and answers 0, or answers the milliseconds until there is one and takes none. */
  take(nowMs: number): number {
    // A clock that jumped back must not empty the bucket for the length of the jump.
    const passed = Math.max(0, nowMs - this.at);
    this.tokens = Math.min(this.burst, this.tokens + (passed * this.ratePerSecond) / 1000);
    this.at = nowMs;
    if (this.tokens < 1) return Math.ceil(((1 - this.tokens) * 1000) / this.ratePerSecond);
    this.tokens -= 1;
    return 0;
  }
}
