/**
 * The work of one session, in the order in which it came, one at a time. Bounded: when it is full the stream is not
 * read on, so that the peer's own flow control holds the rest. Work that fails because the database is away is tried
 * again while the session lasts, with jittered back-off: everything a session reports is safe to repeat.
 */
import { type Problem, toProblem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';

export interface InboxOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onFull: () => void;
  readonly onRoom: () => void;
  /** What cannot succeed by trying again. */
  readonly onFailure: (p: Problem, what: string) => void;
}

interface Work {
  readonly what: string;
  readonly run: () => Promise<void>;
}

const WAITING_MAX = 16;
const TRIES_OF_BUGS = 5;
const BACKOFF_MS = { first: 500, most: 15_000 } as const;

export class Inbox {
  private readonly waiting: Work[] = [];
  private working = false;
  private full = false;
  private readonly options: InboxOptions;

  constructor(options: InboxOptions) {
    this.options = options;
  }

  /** `replaces`: an older one of the same name that has not begun is worth nothing any more. */
  push(what: string, run: () => Promise<void>, replaces = false): void {
    const at = replaces ? this.waiting.findIndex((w) => w.what === what) : -1;
    if (at >= 0) this.waiting[at] = { what, run };
    else this.waiting.push({ what, run });
    if (!this.full && this.waiting.length >= WAITING_MAX) {
      this.full = true;
      this.options.onFull();
    }
    void this.work();
  }

  private async work(): Promise<void> {
    if (this.working) return;
    this.working = true;
    const { signal, onRoom } = this.options;
    for (let next = this.waiting.shift(); next !== undefined && !signal.aborted; next = this.waiting.shift()) {
      await this.attempt(next);
      if (this.full && this.waiting.length < WAITING_MAX / 2) {
        this.full = false;
        onRoom();
      }
    }
    this.working = false;
  }

  private async attempt({ what, run }: Work): Promise<void> {
    const { clock, signal, onFailure } = this.options;
    for (let tries = 1; !signal.aborted; tries++) {
      try {
        return await run();
      } catch (e) {
        const p = toProblem(e);
        const hopeful = p.code === 'INTERNAL' ? tries < TRIES_OF_BUGS : p.spec.http >= 500 || p.code === 'RATE_LIMITED';
        if (!hopeful) return onFailure(p, what);
        const ceiling = Math.min(BACKOFF_MS.most, BACKOFF_MS.first * 2 ** (tries - 1));
        await clock.sleep(ceiling / 2 + (Math.random() * ceiling) / 2, signal).catch(() => {});
      }
    }
  }
}
