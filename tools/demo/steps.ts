/** One line a step: how long since the start, what was done, what came of it. */
import { systemClock } from '#core/kernel/time.ts';

export class Steps {
  readonly #started = systemClock.now();
  count = 0;

  /** Prints the step once it succeeded; what `run` answers as text is printed behind the title. */
  async step<T>(title: string, run: () => Promise<T>, say: (result: T) => string = () => ''): Promise<T> {
    const result = await run();
    const more = say(result);
    this.line(more === '' ? title : `${title}: ${more}`);
    return result;
  }

  line(text: string): void {
    this.count += 1;
    process.stdout.write(`${this.seconds().toFixed(2).padStart(7)} s  ${text}\n`);
  }

  /** Seconds since the start. */
  seconds(): number {
    return (systemClock.now() - this.#started) / 1000;
  }
}

const PAUSE_MS = 50;

/**
 * Asks until `probe` answers something. What it throws is kept: a wait that ends in vain says what the last look saw.
 */
export async function until<T>(
  what: string,
  probe: () => Promise<T | undefined>,
  deadlineSeconds = 60,
): Promise<NonNullable<T>> {
  const end = systemClock.now() + deadlineSeconds * 1000;
  let last: unknown;
  while (systemClock.now() < end) {
    try {
      const found = await probe();
      if (found !== undefined && found !== null) return found;
      last = undefined;
    } catch (e) {
      last = e;
    }
    await systemClock.sleep(PAUSE_MS);
  }
  throw new Error(`waited ${deadlineSeconds} s in vain until ${what}`, { cause: last });
}

export function must(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(`this does not hold: ${what}`);
}
