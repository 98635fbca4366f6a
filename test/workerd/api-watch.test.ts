/** `/v1/watch` in workerd: events arrive, a cut stream goes on where it was cut, and nobody hears of another tenant. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ProductEdge, productEdge } from '#kit/product-edge.ts';
import type { TestTenant } from '#kit/tenants.ts';

let p: ProductEdge;
beforeAll(async () => {
  p = await productEdge();
});
afterAll(() => p?.close());

interface Heard {
  readonly id: string;
  readonly type: string;
  readonly data: { readonly id: string; readonly subject: { readonly id: string } };
}

/** Listens until `enough`, then cuts the stream. */
async function listen(
  who: TestTenant,
  enough: (heard: readonly Heard[]) => boolean,
  lastEventId?: string,
): Promise<Heard[]> {
  const cut = new AbortController();
  const response = await fetch(`${p.edge.url}/v1/watch?types=site.*`, {
    headers: {
      authorization: `Bearer ${who.token}`,
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
    },
    signal: AbortSignal.any([cut.signal, AbortSignal.timeout(20_000)]),
  });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
  const heard: Heard[] = [];
  let text = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const parts = text.split('\n\n');
    text = parts.pop()!;
    for (const part of parts) {
      const fields = Object.fromEntries(
        part.split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]),
      );
      if (fields['data'] !== undefined)
        heard.push({ id: fields['id'], type: fields['event'], data: JSON.parse(fields['data']) });
    }
    if (enough(heard)) break;
  }
  cut.abort();
  return heard;
}

let made = 0;
/** Each tells one event of the family that is listened to; answers the subjects. */
async function makeEvents(who: TestTenant, n: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < n; i++) {
    const site = await p.json(who.token, 'POST', '/v1/sites', { body: { name: `site-${++made}` } });
    expect(site.status).toBe(201);
    ids.push(site.body.id);
  }
  return ids;
}

async function history(who: TestTenant): Promise<{ id: string; cursor: string }[]> {
  const all: { id: string; cursor: string }[] = [];
  for (let cursor = ''; ; ) {
    const path = `/v1/events?types=site.*&limit=3${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
    const page = (await p.json(who.token, 'GET', path)).body;
    if (page.items.length === 0) return all;
    all.push(...page.items);
    cursor = page.nextCursor;
  }
}

test('cut and resumed streams together hear each event once, in order', async () => {
  const first = listen(p.tenant, (h) => h.length >= 2);
  // The stream begins at the end: what follows is heard.
  await new Promise((resolve) => setTimeout(resolve, 300));
  await makeEvents(p.tenant, 2);
  const heard = await first;
  // Told while nobody listens.
  await makeEvents(p.tenant, 3);
  const all = await history(p.tenant);
  for (let rest = all.length - heard.length; rest > 0; rest = all.length - heard.length) {
    const want = Math.min(2, rest);
    heard.push(...(await listen(p.tenant, (h) => h.length >= want, heard.at(-1)!.id)));
  }
  expect(heard.map((h) => h.data.id)).toEqual(all.map((e) => e.id));
}, 60_000);

test('another tenant hears its own events and no other', async () => {
  const both = Promise.all([listen(p.other, (h) => h.length >= 1), listen(p.tenant, (h) => h.length >= 1)]);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const [own] = await makeEvents(p.other, 1);
  const [foreign] = await makeEvents(p.tenant, 1);
  const [others, tenants] = await both;
  expect(others.map((h) => h.data.subject.id)).not.toContain(foreign);
  expect(others[0]!.data.subject.id).toBe(own);
  expect(tenants[0]!.data.subject.id).toBe(foreign);
}, 60_000);

test('a position that nobody gave, and one of another tenant, are refused', async () => {
  await makeEvents(p.other, 1);
  const [position] = await history(p.other);
  for (const id of ['7', 'abc', position!.cursor]) {
    const answer = await p.json(p.tenant.token, 'GET', '/v1/watch', { headers: { 'last-event-id': id } });
    expect([id, answer.status, answer.body.code]).toEqual([id, 400, 'INVALID_CURSOR']);
  }
});
