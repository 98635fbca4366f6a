/** Shard, Lease, Hub and the webhook queue in workerd, against real Postgres. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { type Edge, startEdge } from '#cli/dev/edge.ts';
import { newId } from '#core/kernel/ids.ts';
import { newSecret } from '#core/webhooks/signature.ts';
import type { HeldLease } from '#db/leases.ts';
import { mutate } from '#db/mutate.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type WebhookReceiver, webhookReceiver } from '#kit/webhook-receiver.ts';

const BOUND = { timeout: 30_000, interval: 50 };
const persistDir = mkdtempSync(join(tmpdir(), 'objects-'));
let t: TestDatabase;
let edge: Edge;
let endpoint: WebhookReceiver;

const start = () =>
  startEdge({
    persistDir,
    entry: fileURLToPath(new URL('./objects-worker.ts', import.meta.url)),
    vars: {
      DATABASE_URL: t.url,
      CA_CERT_PEM: '',
      CA_KEY_PEM: '',
      TRUST_DOMAIN: 'test.example',
      GATEWAY_TOKEN: 'unused',
    },
  });
async function call<T>(path: string, body?: unknown): Promise<T> {
  const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
  const response = await fetch(edge.url + path, init);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).slice(0, 300)}`);
  return (await response.json()) as T;
}
const leases = () =>
  t.db.query<HeldLease & Record<string, unknown>>(
    `select name, holder, epoch from leases where name like 'shard:%' order by name`,
  );

beforeAll(async () => {
  t = await testDatabase();
  endpoint = await webhookReceiver();
  edge = await start();
});
afterAll(async () => {
  await edge?.stop();
  await endpoint?.close();
  await t?.close();
  rmSync(persistDir, { recursive: true, force: true });
});

test('a poke gives every shard a turn: leases are taken, sweeps queued, due work done', async () => {
  await t.db.query(`select wake('reservations', 'rsv_none')`);
  await call('/poke');
  await expect.poll(async () => (await leases()).map((l) => l.epoch), BOUND).toEqual([1, 1, 1, 1]);
  await expect.poll(async () => t.db.query(`select 1 from work_queue where kind = 'reservations'`), BOUND).toEqual([]);
  expect((await t.db.query(`select 1 from work_queue where kind = 'sweep'`)).length).toBeGreaterThan(0);
});

test('work that comes later is found without a poke once a sweep comes by, and at once with one', async () => {
  await t.db.query(`select wake('nodes.spec', 'node_none')`);
  await call('/poke');
  await expect.poll(async () => t.db.query(`select 1 from work_queue where kind = 'nodes.spec'`), BOUND).toEqual([]);
});

test('a shard whose process is killed is taken over under a new epoch, and the stale owner may not write', async () => {
  const before = await leases();
  const killed = edge.workerdPid;
  process.kill(killed, 'SIGKILL');
  await edge.died;
  await edge.stop();
  edge = await start();
  // Each object ends the tenure of its earlier self, so nothing waits for the lease to run out.
  await call('/poke');
  await expect.poll(async () => (await leases()).map((l) => l.epoch), BOUND).toEqual(before.map((l) => l.epoch + 1));
  const [old] = before;
  const write = mutate(
    { db: t.db, actor: 'x', admission: { system: 'x' }, fence: { name: old!.name, epoch: old!.epoch } },
    async (tx) => tx.wake('reservations', 'rsv_stale'),
  );
  await expect(write).rejects.toMatchObject({ code: 'STALE_EPOCH' });
  expect(await t.db.query(`select 1 from work_queue where key = 'rsv_stale'`)).toEqual([]);
});

test('a lease taken away by another owner ends the turn; the shard works again once it is free', async () => {
  const [shard] = await leases();
  await t.db.query(
    `update leases set holder = 'intruder', epoch = epoch + 1, expires_at = compute_now() + interval '1 hour' where name = 'shard:0'`,
  );
  await t.db.query(`update work_queue set not_before = compute_now() where kind = 'sweep'`);
  await call('/poke');
  await expect.poll(async () => call('/shard/lease?n=0'), BOUND).toBeNull();
  await t.db.query(`update leases set expires_at = compute_now() where name = 'shard:0'`);
  await call('/poke');
  await expect
    .poll(async () => (await call<HeldLease | null>('/shard/lease?n=0'))?.epoch, BOUND)
    .toBe(shard!.epoch + 2);
});

test('Lease: one holder at a time, renewed under its epoch, a new epoch after it ran out', async () => {
  const at = (path: string, holder: string) => `/lease/${path}?name=pool:p1&holder=${holder}&seconds=30`;
  const all = await Promise.all(['a', 'b', 'c', 'd'].map((h) => call<HeldLease | null>(at('acquire', h))));
  const won = all.filter((l): l is HeldLease => l !== null);
  expect(won).toHaveLength(1);
  const mine = won[0]!;
  expect((await call<HeldLease>(at('renew', ''), mine)).epoch).toBe(mine.epoch);
  await t.db.query(`update leases set expires_at = compute_now() where name = 'pool:p1'`);
  expect(await call(at('renew', ''), mine)).toBeNull();
  const next = await call<HeldLease>(at('acquire', 'e'));
  expect(next.epoch).toBeGreaterThan(mine.epoch);
  await call('/lease/release', mine);
  expect(await call(at('acquire', 'f'))).toBeNull();
  await call('/lease/release', next);
  expect((await call<HeldLease>(at('acquire', 'f'))).epoch).toBe(next.epoch + 1);
});

test('Hub: every watcher of the topic hears a poke, others do not', async () => {
  const open = async (topic: string) => {
    const heard: string[] = [];
    const ws = new WebSocket(`${edge.url.replace('http', 'ws')}/hub?topic=${topic}`);
    ws.on('message', (m) => heard.push(String(m)));
    await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
    return { ws, heard };
  };
  const [a, b, other] = await Promise.all([open('t1'), open('t1'), open('t2')]);
  expect(await call('/hub/poke?topic=t1&cursor=7.1')).toBe(2);
  a.ws.send('ping');
  await expect.poll(() => [a.heard, b.heard, other.heard], BOUND).toEqual([['7.1', 'pong'], ['7.1'], []]);
  b.ws.close();
  await expect.poll(() => call('/hub/poke?topic=t1&cursor=8.1'), BOUND).toBe(1);
  a.ws.close();
  other.ws.close();
});

test('an event goes all the way: commit, poke, queue, endpoint, row; and the tenant hub is told', async () => {
  const tenant = newId('tenant');
  const secret = newSecret();
  await t.db.query(`insert into webhooks (id, tenant_id, url, event_types, secrets) values ($1, $2, $3, '{*}', $4)`, [
    newId('webhook'),
    tenant,
    `${endpoint.url}/all-the-way`,
    JSON.stringify([{ secret }]),
  ]);
  const heard: string[] = [];
  const ws = new WebSocket(`${edge.url.replace('http', 'ws')}/hub?topic=${tenant}`);
  ws.on('message', (m) => heard.push(String(m)));
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
  endpoint.answer('/all-the-way', 307, 200);
  await t.db.query(`select emit('reservation.booked', $1, 'reservation', 'rsv_x', '{"name":"Zürich ✓"}')`, [tenant]);
  await call('/poke');
  const state = () =>
    t.db.query('select state, attempt, response_status from webhook_deliveries where tenant_id = $1', [tenant]);
  await expect.poll(state, BOUND).toEqual([{ state: 'pending', attempt: 1, response_status: 307 }]);
  await t.db.query('update webhook_deliveries set next_attempt_at = compute_now() where tenant_id = $1', [tenant]);
  await call('/poke');
  await expect.poll(state, BOUND).toEqual([{ state: 'delivered', attempt: 2, response_status: 200 }]);
  const got = endpoint.received.filter((r) => r.path === '/all-the-way');
  expect(got).toHaveLength(2);
  expect(new Webhook(secret).verify(got[1]!.body, { ...got[1]!.headers })).toMatchObject({
    data: { name: 'Zürich ✓' },
  });
  await expect.poll(() => heard.length, BOUND).toBeGreaterThan(0);
  ws.close();
});

test('a message that the queue lost only delays the delivery; junk in the queue does no harm', async () => {
  const tenant = newId('tenant');
  const hook = newId('webhook');
  await t.db.query(`insert into webhooks (id, tenant_id, url, event_types, secrets) values ($1, $2, $3, '{*}', $4)`, [
    hook,
    tenant,
    `${endpoint.url}/lost`,
    JSON.stringify([{ secret: newSecret() }]),
  ]);
  // As after a sweep whose message never arrived: handed out, and due again only a while later.
  await t.db.query(
    `insert into events (type, tenant_id, subject_kind, subject_id, data) values ('a.b', $1, 'x', 'x', '{}')`,
    [tenant],
  );
  await t.db.query(
    `insert into webhook_deliveries (webhook_id, tenant_id, event_id, next_attempt_at)
     select $1, $2, id, compute_now() + interval '3 seconds' from events where tenant_id = $2`,
    [hook, tenant],
  );
  await call('/send', { nonsense: true });
  await call('/send', { id: 'dlv_none', attempt: 0 });
  await call('/poke');
  const state = () => t.db.query('select state from webhook_deliveries where tenant_id = $1', [tenant]);
  await expect.poll(state, BOUND).toEqual([{ state: 'delivered' }]);
  expect(endpoint.received.filter((r) => r.path === '/lost')).toHaveLength(1);
});

test('connections that are killed under load cost time, not work', async () => {
  await t.db.query(`select wake('nodes.spec', 'node_' || g) from generate_series(1, 300) g`);
  const left = async () => (await t.db.query(`select 1 from work_queue where kind = 'nodes.spec'`)).length;
  await call('/poke');
  for (let i = 0; i < 5; i++) {
    await t.db.query(`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`);
    await call('/poke');
  }
  const pokedLeft = async () => {
    await call('/poke');
    return left();
  };
  await expect.poll(pokedLeft, { ...BOUND, interval: 200 }).toBe(0);
  expect((await call<unknown[]>('/ping')).length).toBe(1);
});

test('the cron arms shards again', async () => {
  await t.db.query('delete from work_queue');
  await t.db.query(`select wake('reservations', 'rsv_cron')`);
  const worker = await edge.miniflare.getWorker();
  await worker.scheduled({ cron: '* * * * *' });
  await expect.poll(async () => t.db.query(`select 1 from work_queue where key = 'rsv_cron'`), BOUND).toEqual([]);
  await expect
    .poll(async () => (await t.db.query(`select 1 from work_queue where kind = 'sweep'`)).length, BOUND)
    .toBeGreaterThan(0);
});
