/**
 * LISTEN on the channel on which a composed spec announces itself. A hint is only that: polling finds the same. So a
 * connection that is lost is made again with back-off, and nothing is made up for.
 */
import pg from 'pg';
import type { Clock } from '#core/kernel/time.ts';

export interface HintOptions {
  readonly databaseUrl: string;
  readonly clock: Clock;
  readonly onHint: (nodeId: string) => void;
  readonly onError: (e: unknown) => void;
  readonly signal: AbortSignal;
}

const CHANNEL = 'node_spec';
const RETRY_MS = { first: 250, most: 10_000 } as const;

/** Runs until the signal. */
export async function listenForHints(o: HintOptions): Promise<void> {
  for (let failures = 0; !o.signal.aborted; failures++) {
    const client = new pg.Client({
      connectionString: o.databaseUrl,
      application_name: 'better-compute gateway hints',
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
    });
    try {
      const lost = new Promise<void>((resolve) => {
        client.on('error', (e) => {
          o.onError(e);
          resolve();
        });
        client.on('end', resolve);
        o.signal.addEventListener('abort', () => resolve(), { once: true });
      });
      client.on('notification', (n) => {
        if (n.payload !== undefined && n.payload !== '') o.onHint(n.payload);
      });
      await client.connect();
      await client.query(`listen ${CHANNEL}`);
      failures = 0;
      await lost;
    } catch (e) {
      o.onError(e);
    } finally {
      await client.end().catch(() => {});
    }
    const ceiling = Math.min(RETRY_MS.most, RETRY_MS.first * 2 ** Math.min(failures, 10));
    await o.clock.sleep(Math.random() * ceiling, o.signal).catch(() => {});
  }
}
