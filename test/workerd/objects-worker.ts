/** The objects and queue consumers as a Worker of their own, with a door for the tests. */
import { type DurableEnv, openDatabase } from '#workers/durable/bindings.ts';
import { onCron } from '#workers/durable/cron.ts';
import { pokeShards } from '#workers/durable/shard.ts';
import { consumeDeadLetters, consumeDeliveries } from '#workers/webhooks/consumer.ts';

export { Hub } from '#workers/durable/hub.ts';
export { Lease } from '#workers/durable/lease.ts';
export { Shard } from '#workers/durable/shard.ts';

type Call = [path: string, run: (env: DurableEnv, args: URLSearchParams, request: Request) => Promise<unknown>];
const num = (args: URLSearchParams, key: string) => Number(args.get(key));
const text = (args: URLSearchParams, key: string) => args.get(key) ?? '';

const CALLS: readonly Call[] = [
  ['/poke', async (env) => pokeShards(env)],
  ['/shard/lease', async (env, a) => env.SHARD.getByName(`shard:${num(a, 'n')}`).lease()],
  [
    '/lease/acquire',
    async (env, a) =>
      env.LEASE.getByName(text(a, 'name')).acquire(text(a, 'name'), text(a, 'holder'), num(a, 'seconds')),
  ],
  ['/lease/renew', async (env, a, r) => env.LEASE.getByName(text(a, 'name')).renew(await r.json(), num(a, 'seconds'))],
  ['/lease/release', async (env, a, r) => env.LEASE.getByName(text(a, 'name')).release(await r.json())],
  ['/hub/poke', async (env, a) => env.HUB.getByName(text(a, 'topic')).poke(text(a, 'cursor'))],
  ['/send', async (env, _, r) => env.WEBHOOK_QUEUE.send(await r.json())],
  ['/ping', async (env) => openDatabase(env).query('select 1 as one')],
];

export default {
  async fetch(request: Request, env: DurableEnv): Promise<Response> {
    const url = new URL(request.url);
    if (url.pathname === '/hub') return env.HUB.getByName(text(url.searchParams, 'topic')).fetch(request);
    const call = CALLS.find(([path]) => path === url.pathname);
    if (call === undefined) return new Response('not found', { status: 404 });
    return Response.json((await call[1](env, url.searchParams, request)) ?? null);
  },
  async scheduled(_: ScheduledController, env: DurableEnv): Promise<void> {
    await onCron(env);
  },
  async queue(batch: MessageBatch<unknown>, env: DurableEnv): Promise<void> {
    if (batch.queue.endsWith('-dead')) consumeDeadLetters(batch);
    else await consumeDeliveries(batch, env);
  },
};
