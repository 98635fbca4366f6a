/** Closed-loop load: so many clients, each asking again as soon as it was answered. */
import { systemClock } from '#core/kernel/time.ts';

export interface Arm {
  readonly name: string;
  /** One operation of one client; throws when it did not succeed. */
  run(client: number): Promise<void>;
}

export interface Measured {
  readonly perSecond: number;
  /** Milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly operations: number;
}

export async function load(arm: Arm, o: { clients: number; seconds: number }): Promise<Measured> {
  const latencies: number[] = [];
  const started = performance.now();
  const end = started + o.seconds * 1000;
  const client = async (n: number) => {
    for (let before = performance.now(); before < end; ) {
      await arm.run(n);
      const after = performance.now();
      latencies.push(after - before);
      before = after;
    }
  };
  await Promise.all(Array.from({ length: o.clients }, (_, n) => client(n)));
  const seconds = (performance.now() - started) / 1000;
  latencies.sort((a, b) => a - b);
  return {
    perSecond: latencies.length / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    operations: latencies.length,
  };
}

/** Of sorted values; NaN of none. */
export function percentile(sorted: readonly number[], p: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? Number.NaN;
}

/** The middle one, so that one disturbed round does not speak for the rest. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return percentile(sorted, 0.5);
}

/** Gives the disk and the garbage collector a moment between rounds. */
export const rest = (): Promise<void> => systemClock.sleep(300);
