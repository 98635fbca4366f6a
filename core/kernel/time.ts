/**
 * Time. Decisions take `now` as an argument; hosts get a Clock for local durations only; the control plane's one
 * clock is the database's `compute_now()`. This file is the only one that may ask the machine for the time.
 */

/** RFC 3339 in UTC, with up to microseconds: `2026-12-01T06:00:00.123456Z`. Kept as text so that nothing is rounded. */
export type Instant = string;

export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves after `ms`; rejects at once when the signal aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const stop = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', stop);
        resolve();
      }, ms);
      signal?.addEventListener('abort', stop, { once: true });
    }),
};

/** What `work` gives, or throws what `late` makes when that takes longer than `ms`. The work itself goes on. */
export async function within<T>(ms: number, work: Promise<T>, late: () => unknown): Promise<T> {
  let timer!: ReturnType<typeof setTimeout>;
  const bell = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  try {
    return await Promise.race([work, bell]);
  } finally {
    clearTimeout(timer);
  }
}

export function toMillis(instant: Instant): number {
  const ms = Date.parse(instant);
  if (Number.isNaN(ms)) throw new TypeError(`not an instant: ${instant}`);
  return ms;
}

export function fromMillis(ms: number): Instant {
  return new Date(ms).toISOString();
}

export function addSeconds(instant: Instant, seconds: number): Instant {
  return fromMillis(toMillis(instant) + seconds * 1000);
}
