/** Both transports against a real endpoint on loopback, and against names that lead inside. */
import { lookup } from 'node:dns/promises';
import { createServer, type RequestListener } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WebhookTransport } from '#core/webhooks/transport.ts';
import { fetchTransport } from './fetch.ts';
import { nodeTransport } from './node.ts';

const seen: { path: string; body: string; headers: Record<string, unknown> }[] = [];
const answers: Record<string, RequestListener> = {
  '/ok': (_, res) => res.end('fine'),
  '/slow': () => {},
  '/drip': (_, res) => {
    res.writeHead(200);
    res.write('begun');
  },
  '/endless': (_, res) => {
    const more = () => {
      while (!res.destroyed && res.write('x'.repeat(10_000)));
      res.once('drain', more);
    };
    more();
  },
  '/binary': (_, res) => res.end(Buffer.from([0, 27, 255, 65])),
  '/busy': (_, res) => {
    res.writeHead(503, { 'retry-after': '120' });
    res.end('later');
  },
  '/reset': (req) => req.socket.destroy(),
};
const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on('data', (c) => chunks.push(c));
  req.on('end', () => {
    const url = new URL(req.url!, 'http://x');
    seen.push({ path: url.pathname, body: Buffer.concat(chunks).toString(), headers: req.headers });
    const redirect = /^\/redirect\/(\d+)$/.exec(url.pathname);
    if (redirect) {
      res.writeHead(Number(redirect[1]), { location: url.searchParams.get('to')! });
      res.end('moved');
    } else answers[url.pathname]!(req, res);
  });
});
let base = '';
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const addressesOf: Record<string, string[]> = {
  'inside.example.com': ['10.0.0.5'],
  'mixed.example.com': ['93.184.216.34', '169.254.169.254'],
  'mapped.example.com': ['::ffff:127.0.0.1'],
  'loop.example.com': ['127.0.0.1'],
  'nothing.example.com': [],
};
async function resolve(host: string): Promise<string[]> {
  const found = addressesOf[host];
  if (found !== undefined) return found;
  return (await lookup(host, { all: true })).map((a) => a.address);
}
const withFamily = async (host: string) =>
  (await resolve(host)).map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));

const make = {
  node: (allowLoopback: boolean, deadlineSeconds = 5) =>
    nodeTransport({ policy: { allowLoopback }, resolve: withFamily, deadlineSeconds }),
  fetch: (allowLoopback: boolean, deadlineSeconds = 5) =>
    fetchTransport({ policy: { allowLoopback }, resolve, deadlineSeconds }),
};

describe.each(['node', 'fetch'] as const)('%s', (kind) => {
  const post = (transport: WebhookTransport, url: string, body = '{}') =>
    transport.post({ url, headers: { 'content-type': 'application/json', 'webhook-id': 'evt_1' }, body });

  test('sends the bytes and headers as given', async () => {
    const body = '{"name":"Zürich ✓ 東京"}\n';
    expect(await post(make[kind](true), `${base}/ok`, body)).toEqual({
      kind: 'answered',
      status: 200,
      excerpt: 'fine',
    });
    expect(seen.at(-1)).toMatchObject({ path: '/ok', body, headers: { 'webhook-id': 'evt_1' } });
  });

  test.each([301, 302, 303, 307, 308])('%i is an answer, never followed', async (status) => {
    for (const to of ['http://169.254.169.254/latest/meta-data/', '//[::ffff:10.0.0.5]/', '/ok']) {
      const before = seen.length;
      const answer = await post(make[kind](true), `${base}/redirect/${status}?to=${encodeURIComponent(to)}`);
      expect(answer).toMatchObject({ kind: 'answered', status });
      expect(seen.length).toBe(before + 1);
    }
  });

  test('ends at its deadline: silent, dripping and endless endpoints', async () => {
    expect(await post(make[kind](true, 0.2), `${base}/slow`)).toEqual({
      kind: 'failed',
      reason: 'no answer within the deadline',
    });
    expect(await post(make[kind](true, 0.2), `${base}/drip`)).toMatchObject({ kind: 'answered', excerpt: 'begun' });
    const endless = await post(make[kind](true), `${base}/endless`);
    expect(endless).toMatchObject({ kind: 'answered', status: 200 });
    expect((endless as { excerpt: string }).excerpt).toHaveLength(1024);
  });

  test('shows safe text and the wait that was asked for', async () => {
    expect(await post(make[kind](true), `${base}/binary`)).toMatchObject({ excerpt: '\ufffd\ufffd\ufffdA' });
    expect(await post(make[kind](true), `${base}/busy`)).toEqual({
      kind: 'answered',
      status: 503,
      excerpt: 'later',
      retryAfterSeconds: 120,
    });
  });

  test('a connection that breaks is a failure', async () => {
    expect(await post(make[kind](true), `${base}/reset`)).toMatchObject({ kind: 'failed' });
    expect(await post(make[kind](true), 'http://127.0.0.1:1/')).toMatchObject({ kind: 'failed' });
  });

  test.each(['inside', 'mixed', 'mapped', 'loop'])('a name with an address inside is not called: %s', async (name) => {
    const before = seen.length;
    const answer = await post(make[kind](false), `https://${name}.example.com:8443/`);
    expect(answer).toMatchObject({ kind: 'refused', reason: expect.stringContaining('private or reserved') });
    expect(seen.length).toBe(before);
  });

  test('loopback is refused unless allowed; a name without address fails', async () => {
    expect(await post(make[kind](false), `${base}/ok`)).toMatchObject({ kind: 'refused' });
    expect(await post(make[kind](true), `${base.replace('127.0.0.1', 'localhost')}/ok`)).toMatchObject({ status: 200 });
    expect(await post(make[kind](true), 'https://nothing.example.com/')).toMatchObject({ kind: 'failed' });
    expect(await post(make[kind](true), 'http://169.254.169.254/')).toMatchObject({ kind: 'refused' });
  });
});
