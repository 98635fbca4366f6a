/**
 * More writes at once than an isolate lets in. In workerd a request may not live by another one's promise alone, and one
 * whose caller hung up never runs another line: neither may cost the others anything.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ProductEdge, productEdge } from '#kit/product-edge.ts';

let p: ProductEdge;
beforeAll(async () => {
  p = await productEdge();
});
afterAll(() => p?.close());

const create = (name: string) => p.json(p.root.token, 'POST', '/v1/sites', { body: { name, iamRegion: 'crowd' } });
const names = (prefix: string, n: number) => Array.from({ length: n }, (_, i) => `${prefix}-${i}`);

test('sixty writes at once are all answered', async () => {
  const answers = await Promise.all(names('all', 60).map(create));
  expect(answers.map((a) => a.status)).toEqual(answers.map(() => 201));
});

test('callers that hang up, inside or waiting, leave no place taken', async () => {
  let hungUp = 0;
  for (let round = 0; round < 16; round++) {
    const gone = new AbortController();
    const cut = names(`cut-${round}`, 40).map((name) =>
      fetch(`${p.edge.url}/v1/sites`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${p.root.token}`,
          'content-type': 'application/json',
          'idempotency-key': name,
        },
        body: JSON.stringify({ name, iamRegion: 'crowd' }),
        signal: gone.signal,
      }).then((r) => r.arrayBuffer()),
    );
    await pause(5 + 4 * round);
    gone.abort();
    const ended = await Promise.allSettled(cut);
    hungUp += ended.filter((e) => e.status === 'rejected').length;
  }
  // A fast machine answers the later rounds before they hang up.
  expect(hungUp).toBeGreaterThan(40);
  // Asked again as they are told to, while some of the gone still count as waiting.
  const again = async (name: string) => {
    for (let n = 1; ; n++) {
      const answer = await create(name);
      if (answer.status !== 503 || n === 5) return answer;
      await pause(1_000 * Number(answer.headers.get('retry-after')));
    }
  };
  const answers = await Promise.all(names('after', 30).map(again));
  expect(answers.map((a) => a.status)).toEqual(answers.map(() => 201));
});
