/**
 * When a delivery is tried again. Ten attempts over a good three days: quick at first, for an endpoint that restarts,
 * then long enough to outlast a weekend.
 */
const MINUTE = 60;
const HOUR = 3600;

/** Seconds between an attempt that failed and the next; the first attempt is made at once. */
export const RETRY_SECONDS = [
  5,
  5 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  14 * HOUR,
  20 * HOUR,
  24 * HOUR,
] as const;

export const ATTEMPTS_MAX = RETRY_SECONDS.length + 1;
/** Deliveries that died one after the other, with none delivered between, after which the webhook is disabled. */
export const DEAD_IN_A_ROW_MAX = 5;
/** How long an old secret signs beside the new one. */
export const ROTATION_SECONDS = 24 * HOUR;
/** A tenth either way, so that a thousand deliveries that failed together do not return together. */
const JITTER = 0.1;
const RETRY_AFTER_SECONDS_MAX = 24 * HOUR;

/**
 * Seconds until the next attempt after the `attempts`-th failed, or undefined when that was the last. `roll` is a
 * number in [0, 1). A longer wait that the endpoint asked for is honoured up to a day.
 */
export function retryDelaySeconds(attempts: number, roll: number, retryAfterSeconds = 0): number | undefined {
  const base = RETRY_SECONDS[attempts - 1];
  if (base === undefined) return undefined;
  const delay = base * (1 - JITTER + 2 * JITTER * roll);
  return Math.max(delay, Math.min(retryAfterSeconds, RETRY_AFTER_SECONDS_MAX));
}
