/** The edge while its database loses connections and refuses new ones: errors that may be repeated, and nothing half done. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bookErrors } from '#kit/books.ts';
import { type ProductEdge, productEdge } from '#kit/product-edge.ts';
import { openPg, type PgDatabase } from '#plugins/database/node-postgres.ts';

let p: ProductEdge;
let admin: PgDatabase;
let name: string;

beforeAll(async () => {
  p = await productEdge();
  const url = new URL(p.t.url);
  name = url.pathname.slice(1);
  url.pathname = '/postgres';
  admin = openPg(url.href, { max: 1 });
});
afterAll(async () => {
  await admin?.query(`alter database ${name} with allow_connections true`).catch(() => {});
  await p?.close();
  await admin?.close();
});

const killAll = () =>
  admin.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and backend_type = 'client backend'",
    [name],
  );
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** One reservation and its release, each repeated under its key until it is answered. */
async function cycle(key: string, seen: Map<string, number>): Promise<void> {
  const again = async (path: string, body: object, k: string) => {
    for (let n = 0; n < 200; n++) {
      const answer = await p.json(p.tenant.token, 'POST', path, { body, key: k });
      seen.set(
        `${answer.status} ${answer.body.code ?? ''}`.trim(),
        (seen.get(`${answer.status} ${answer.body.code ?? ''}`.trim()) ?? 0) + 1,
      );
      if (answer.status < 400) return answer.body;
      expect(answer.body.retry, JSON.stringify(answer.body)).not.toBe('never');
      await pause(20);
    }
    throw new Error(`${path} was never answered`);
  };
  const wish = { poolId: p.fleet.poolId, devices: [{ class: 'gpu', count: 1 }], durationSeconds: 600, name: key };
  const made = await again('/v1/reservations', wish, `${key}-make`);
  await again(`/v1/reservations/${made.id}/release`, {}, `${key}-release`);
}

test('connections that die under load cost repetitions and nothing else', async () => {
  const seen = new Map<string, number>();
  let over = false;
  const killing = (async () => {
    while (!over) {
      await pause(150);
      await killAll();
    }
  })();
  // Eight devices and four at once: nothing is refused for want of capacity, as a machine never lets go here.
  await Promise.all(Array.from({ length: 4 }, (_, n) => cycle(`load-${n}`, seen)));
  await pause(500);
  over = true;
  await killing;
  const [count] = await p.t.db.query<{ n: number; made: number }>(
    "select count(*)::int as n, count(distinct name)::int as made from reservations where name like 'load-%' and state <> 'draft'",
  );
  expect(count).toEqual({ n: 4, made: 4 });
  expect(await bookErrors(p.t.db)).toEqual([]);
}, 120_000);

test('while the database refuses connections the edge lives, is not ready, and says when to come again', async () => {
  await admin.query(`alter database ${name} with allow_connections false`);
  await killAll();
  const answer = await p.json(p.tenant.token, 'GET', '/v1/reservations', { headers: {} });
  expect(answer.body).toMatchObject({ status: 503, retry: 'after' });
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await p.json(undefined, 'GET', '/healthz')).status).toBe(200);
  expect((await p.json(undefined, 'GET', '/readyz')).status).toBe(503);
  await admin.query(`alter database ${name} with allow_connections true`);
  for (let n = 0; (await p.json(undefined, 'GET', '/readyz')).status !== 200; n++) {
    expect(n).toBeLessThan(200);
    await pause(50);
  }
  expect((await p.json(p.tenant.token, 'GET', '/v1/reservations')).status).toBe(200);
}, 60_000);
