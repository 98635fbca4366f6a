/** The local edge with the product's bindings, around a small Worker of its own. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Edge, startEdge } from '#cli/dev/edge.ts';
import { isAlive } from '#cli/dev/workerd-process.ts';
import { emptyDatabase, type TestDatabase } from '#kit/database.ts';

const entry = fileURLToPath(new URL('./fixtures/probe-worker.ts', import.meta.url));
const persistDir = mkdtempSync(join(tmpdir(), 'edge-'));
let t: TestDatabase;
let edge: Edge;

const start = (port?: number) =>
  startEdge({
    entry,
    persistDir,
    ...(port === undefined ? {} : { port }),
    vars: {
      DATABASE_URL: t.url,
      CA_CERT_PEM: 'cert',
      CA_KEY_PEM: 'key',
      TRUST_DOMAIN: 'test.local',
      GATEWAY_TOKEN: 'token',
    },
  });
const get = async (path: string) => (await fetch(`${edge.url}${path}`)).json();

async function until<T>(read: () => Promise<T>, good: (v: T) => boolean): Promise<T> {
  for (let i = 0; i < 300; i++) {
    const value = await read();
    if (good(value)) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('did not happen within 15 s');
}

beforeAll(async () => {
  t = await emptyDatabase();
  await t.db.query('create table probe (at timestamptz)');
  await t.db.query('create table received (queue text, body jsonb)');
  edge = await start();
});
afterAll(async () => {
  await edge?.stop();
  await t?.close();
  rmSync(persistDir, { recursive: true, force: true });
});

test('gives the Worker its settings, objects and queue', async () => {
  expect(await get('/bindings')).toMatchObject({
    DATABASE_URL: t.url,
    IAM_MODE: 'embedded',
    TRUST_DOMAIN: 'test.local',
    PUBLIC_URL: edge.url,
    PG_PROXY: edge.neonProxy,
    ALLOW_PRIVATE_WEBHOOKS: 'loopback',
    LEASE: 'binding',
    SHARD: 'binding',
    HUB: 'binding',
    WEBHOOK_QUEUE: 'binding',
  });
});

test('a query and a transaction from workerd give the documented values and errors', async () => {
  expect(await get('/')).toEqual([{ at: '2026-12-01T00:00:00.000000Z', ints: [1, 2] }]);
  expect(await get('/write')).toMatchObject([{ n: 1 }]);
  expect(await get('/write')).toMatchObject([{ n: 2, at: expect.stringMatching(/\.\d{6}Z$/) }]);
  expect(await get('/fail')).toEqual(['SqlError 22012', 'SqlError 22012']);
});

test('twenty transactions at once each end', async () => {
  await Promise.all(Array.from({ length: 20 }, () => get('/write')));
  expect(await t.db.query('select count(*) as n from probe')).toEqual([{ n: 22 }]);
});

test('a queued message and a cron reach the Worker', async () => {
  await get('/send');
  const worker = await edge.miniflare.getWorker();
  await worker.scheduled({ cron: '* * * * *' });
  const rows = await until(
    () => t.db.query('select queue, body from received order by queue'),
    (r) => r.length === 2,
  );
  expect(rows).toEqual([
    { queue: 'cron', body: '* * * * *' },
    { queue: 'webhook-deliveries', body: { delivery: 'one' } },
  ]);
});

test("an object's storage survives a restart on the same port", async () => {
  expect(await get('/lease')).toEqual({ n: 1 });
  const { port } = new URL(edge.url);
  await edge.stop();
  edge = await start(Number(port));
  expect(new URL(edge.url).port).toBe(port);
  expect(await get('/lease')).toEqual({ n: 2 });
});

test('workerd dies with the process that started it, and its death is noticed', async () => {
  const program = `
    import { startEdge } from ${JSON.stringify(new URL('../../cli/dev/edge.ts', import.meta.url).href)};
    const vars = ${JSON.stringify({ DATABASE_URL: t.url, CA_CERT_PEM: '', CA_KEY_PEM: '', TRUST_DOMAIN: 't', GATEWAY_TOKEN: 't' })};
    const edge = await startEdge({ entry: ${JSON.stringify(entry)}, vars });
    console.log('pid ' + edge.workerdPid);
    await edge.died;
    process.exit(7);`;
  const host = () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    const pid = new Promise<number>((resolve) =>
      child.stdout.on('data', (d: Buffer) => {
        const found = /pid (\d+)/.exec(String(d));
        if (found !== null) resolve(Number(found[1]));
      }),
    );
    return { child, exited, pid };
  };
  const killed = host();
  const orphan = await killed.pid;
  killed.child.kill('SIGKILL');
  await killed.exited;
  await until(
    async () => isAlive(orphan),
    (alive) => !alive,
  );

  const bereft = host();
  process.kill(await bereft.pid, 'SIGKILL');
  expect(await bereft.exited).toBe(7);
});
