/**
 * The edge on this machine: the Worker in workerd, with its objects, queues and crons as wrangler.toml names them, and
 * a local Neon proxy before the database. The same function serves `better-compute dev` and the tests.
 */
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { convertV4MiniflareOptions, Miniflare } from 'miniflare';
import { unstable_getMiniflareWorkerOptions } from 'wrangler';
import { systemClock } from '#core/kernel/time.ts';
import { startNeonProxy } from './neon-proxy.ts';
import { freePort } from './ports.ts';
import { killWithUs, untilGone, workerdPid } from './workerd-process.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What the Worker gets beside the objects and queues that wrangler.toml names. */
export interface EdgeVars {
  readonly DATABASE_URL: string;
  readonly CA_CERT_PEM: string;
  readonly CA_KEY_PEM: string;
  readonly TRUST_DOMAIN: string;
  readonly GATEWAY_TOKEN: string;
  readonly IAM_MODE?: 'embedded' | 'remote';
  /** By default the address at which this edge listens. */
  readonly PUBLIC_URL?: string;
  /** `loopback` lets webhooks go to this machine; never set in production. */
  readonly ALLOW_PRIVATE_WEBHOOKS?: 'loopback';
  readonly [name: string]: string | undefined;
}

export interface EdgeOptions {
  readonly vars: EdgeVars;
  /** 0 or undefined takes a free one. */
  readonly port?: number;
  /** Where objects keep their storage between runs; undefined forgets it. */
  readonly persistDir?: string;
  /** By default the `main` of wrangler.toml. */
  readonly entry?: string;
  readonly wranglerToml?: string;
}

export interface Edge {
  readonly url: string;
  readonly workerdPid: number;
  readonly miniflare: Miniflare;
  /** `host:port` of the Neon proxy that the Worker uses. */
  readonly neonProxy: string;
  /** Resolves when workerd is gone without having been stopped. */
  readonly died: Promise<void>;
  stop(): Promise<void>;
}

export async function startEdge(o: EdgeOptions): Promise<Edge> {
  const config = unstable_getMiniflareWorkerOptions(o.wranglerToml ?? `${ROOT}wrangler.toml`);
  const entry = o.entry ?? config.main;
  if (entry === undefined) throw new Error('wrangler.toml names no main');
  const script = await bundleWorker(entry);
  const proxy = await startNeonProxy(o.vars.DATABASE_URL);
  const port = o.port || (await freePort());
  const worker = config.workerOptions;
  const settings = worker.bindings as Readonly<Record<string, string>> | undefined;
  const crons = (worker.cronTriggers ?? []) as readonly string[];
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      host: '127.0.0.1',
      port: 0,
      cf: false,
      ...(o.persistDir === undefined ? {} : { resourcePersistencePath: o.persistDir }),
      workers: [
        {
          name: 'better-compute',
          modules: true,
          script,
          compatibilityDate: worker.compatibilityDate,
          compatibilityFlags: worker.compatibilityFlags,
          durableObjects: worker.durableObjects,
          queueProducers: worker.queueProducers,
          queueConsumers: worker.queueConsumers,
          unsafeDirectSockets: [{ host: '127.0.0.1', port }],
          bindings: {
            ...settings,
            IAM_MODE: 'embedded',
            PUBLIC_URL: `http://127.0.0.1:${port}`,
            ALLOW_PRIVATE_WEBHOOKS: 'loopback',
            ...o.vars,
            PG_PROXY: proxy.address,
          },
        },
      ],
    } as Parameters<typeof convertV4MiniflareOptions>[0]),
  );
  const ended = new AbortController();
  try {
    await miniflare.ready;
    const url = (await miniflare.unsafeGetDirectURL()).href.replace(/\/$/, '');
    const pid = workerdPid();
    const reaper = killWithUs(pid);
    const died = untilGone(pid, ended.signal);
    for (const cron of crons) void runCron(miniflare, cron, ended.signal);
    return {
      url,
      workerdPid: pid,
      miniflare,
      neonProxy: proxy.address,
      died,
      async stop() {
        ended.abort();
        await miniflare.dispose();
        reaper.release();
        await proxy.close();
      },
    };
  } catch (e) {
    await miniflare.dispose().catch(() => {});
    await proxy.close();
    throw e;
  }
}

/** One module, as Cloudflare would get it. */
export async function bundleWorker(entry: string): Promise<string> {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'es2023',
    platform: 'browser',
    mainFields: ['browser', 'module', 'main'],
    // Not `import`: with it a require() inside a library would be given an ES module.
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    sourcemap: 'inline',
    logLevel: 'silent',
    loader: { '.sql': 'text', '.html': 'text', '.txt': 'text' },
  });
  return result.outputFiles[0]!.text;
}

/** Local workerd keeps no time-table: each cron is run once a minute, which is what ours ask for. */
async function runCron(miniflare: Miniflare, cron: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await systemClock.sleep(60_000, signal);
      const worker = await miniflare.getWorker();
      await worker.scheduled({ cron });
    } catch (e) {
      if (!signal.aborted) console.error(`cron ${cron} failed:`, (e as Error).message);
    }
  }
}
