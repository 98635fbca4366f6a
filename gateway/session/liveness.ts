/**
 * Once a second: sessions that were silent for their whole lease are cut off, and nodes whose lease lapsed are written
 * as unreachable, sorted and in batches. The stream of a silent peer is destroyed with its socket: a graceful close
 * would wait for an answer that never comes.
 */
import type { Clock } from '#core/kernel/time.ts';
import { closeSessions, type GatewayContext } from '#services/sessions/index.ts';
import type { PausedListener } from './listener.ts';
import type { Registry } from './registry.ts';

const TICK_MS = 1000;
const BATCH = 200;
/** A tick that is later than this says that the process itself stood still. */
const STALL_MS = 5000;

export interface LivenessDeps {
  readonly clock: Clock;
  readonly registry: Registry;
  readonly listener: PausedListener;
  readonly books: GatewayContext;
  readonly onError: (e: unknown) => void;
  readonly signal: AbortSignal;
}

/** Runs until the signal. */
export async function watchLiveness(deps: LivenessDeps): Promise<void> {
  const { clock, registry, listener, signal } = deps;
  let last = clock.now();
  while (!signal.aborted) {
    await clock.sleep(TICK_MS, signal).catch(() => {});
    if (signal.aborted) return;
    const now = clock.now();
    const late = now - last - TICK_MS;
    last = now;
    if (late > STALL_MS) registry.forgive(late);
    for (const session of registry.silent(now)) {
      registry.remove(session, now);
      listener.destroy(session.peer);
    }
    for (const session of registry.all()) {
      if (session.certificateEndsMs > now) continue;
      session.end('certificate-expired', 'the certificate ran out and was not renewed');
    }
    listener.sweep();
    await settleLapsed(deps, now);
  }
}

async function settleLapsed({ registry, books, onError }: LivenessDeps, now: number): Promise<void> {
  const lapsed = registry.lapsed(now).sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
  for (const reason of new Set(lapsed.map((l) => l.reason))) {
    const same = lapsed.filter((l) => l.reason === reason);
    for (let i = 0; i < same.length; i += BATCH) {
      const batch = same.slice(i, i + BATCH);
      try {
        await closeSessions(books, batch, reason);
        registry.settle(batch);
      } catch (e) {
        // The database is away: they stay in the list, and it is not asked again before the next tick.
        onError(e);
        return;
      }
    }
  }
}
