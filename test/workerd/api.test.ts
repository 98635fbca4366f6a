/** The REST edge in workerd: what it refuses, and how it says so. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { type Answer, type ProductEdge, productEdge, type Send } from '#kit/product-edge.ts';

let p: ProductEdge;
beforeAll(async () => {
  p = await productEdge();
});
afterAll(() => p?.close());

const LIMIT = 256 * 1024;
const wish = (over: object = {}) => ({
  poolId: p.fleet.poolId,
  devices: [{ class: 'gpu', count: 1 }],
  durationSeconds: 600,
  ...over,
});

function expectProblem(answer: Answer, status: number, code: string, field?: string): void {
  expect(answer.body, JSON.stringify(answer.body)).toMatchObject({ status, code });
  expect(answer.status).toBe(status);
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  expect(answer.body.wayOut).toMatch(/\w/);
  expect(answer.body.requestId).toBe(answer.headers.get('x-request-id'));
  if (field !== undefined) expect(answer.body.errors.map((e: { field: string }) => e.field)).toContain(field);
}

/** Title, then how the request differs from a good reservations.create, then the answer. */
const BODIES: readonly [string, () => Send, number, string, string?][] = [
  ['an unknown field', () => ({ body: wish({ colour: 'red' }) }), 400, 'INVALID_REQUEST', 'colour'],
  [
    'an unknown field inside',
    () => ({ body: wish({ devices: [{ class: 'gpu', count: 1, colour: 1 }] }) }),
    400,
    'INVALID_REQUEST',
    'devices[0].colour',
  ],
  ['a wrong type', () => ({ body: wish({ durationSeconds: '600' }) }), 400, 'INVALID_REQUEST', 'durationSeconds'],
  [
    'a fraction of a second',
    () => ({ body: wish({ durationSeconds: 60.5 }) }),
    400,
    'INVALID_REQUEST',
    'durationSeconds',
  ],
  [
    'a missing field',
    () => ({ body: { poolId: p.fleet.poolId, durationSeconds: 600 } }),
    400,
    'INVALID_REQUEST',
    'devices',
  ],
  ['no devices', () => ({ body: wish({ devices: [] }) }), 400, 'INVALID_REQUEST', 'devices'],
  [
    'too many devices',
    () => ({ body: wish({ devices: [{ class: 'gpu', count: 65 }] }) }),
    400,
    'INVALID_REQUEST',
    'devices[0].count',
  ],
  [
    'too many devices together',
    () => ({
      body: wish({
        devices: [
          { class: 'gpu', count: 40 },
          { class: 'disk', count: 40 },
        ],
      }),
    }),
    400,
    'INVALID_REQUEST',
    'devices',
  ],
  [
    'a class that is none',
    () => ({ body: wish({ devices: [{ class: 'tpu', count: 1 }] }) }),
    400,
    'INVALID_REQUEST',
    'devices[0].class',
  ],
  ['an id of another kind', () => ({ body: wish({ poolId: newId('site') }) }), 400, 'INVALID_REQUEST', 'poolId'],
  ['an id that is none', () => ({ body: wish({ poolId: 'pool_1' }) }), 400, 'INVALID_REQUEST', 'poolId'],
  ['a pool that is not there', () => ({ body: wish({ poolId: newId('pool') }) }), 404, 'NOT_FOUND'],
  ['no JSON', () => ({ raw: '{"poolId":' }), 400, 'INVALID_REQUEST', 'body'],
  ['a list in place of an object', () => ({ raw: '[]' }), 400, 'INVALID_REQUEST', 'body'],
  ['null', () => ({ raw: 'null' }), 400, 'INVALID_REQUEST', 'body'],
  ['no UTF-8', () => ({ raw: new Uint8Array([0x22, 0xff, 0x22]) }), 400, 'INVALID_REQUEST', 'body'],
  [
    'a body of no JSON type',
    () => ({ body: wish(), headers: { 'content-type': 'text/plain' } }),
    415,
    'UNSUPPORTED_MEDIA_TYPE',
  ],
  ['a body above the limit', () => ({ raw: ' '.repeat(LIMIT + 1) }), 413, 'PAYLOAD_TOO_LARGE'],
  [
    'a body above the limit that announces no length',
    () => ({ raw: new Blob([' '.repeat(LIMIT + 1)]).stream() }),
    413,
    'PAYLOAD_TOO_LARGE',
  ],
  ['a key with a space', () => ({ body: wish(), key: 'a b' }), 400, 'INVALID_REQUEST', 'Idempotency-Key'],
  ['a key that is too long', () => ({ body: wish(), key: 'k'.repeat(256) }), 400, 'INVALID_REQUEST', 'Idempotency-Key'],
  ['a name with a control character', () => ({ body: wish({ name: 'a\u0000b' }) }), 400, 'INVALID_REQUEST', 'name'],
];

describe('a reservation is refused for', () => {
  test.for(BODIES)('%s', async ([, send, status, code, field]) => {
    const [before] = await p.t.db.query<{ n: number }>('select count(*)::int as n from reservations');
    expectProblem(await p.json(p.tenant.token, 'POST', '/v1/reservations', send()), status, code, field);
    const [after] = await p.t.db.query<{ n: number }>('select count(*)::int as n from reservations');
    expect(after).toEqual(before);
  });

  test('the lack of a key', async () => {
    const response = await fetch(`${p.edge.url}/v1/reservations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${p.tenant.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(wish()),
    });
    expect(await response.json()).toMatchObject({ status: 400, code: 'IDEMPOTENCY_KEY_REQUIRED' });
  });

  test('a pool that one may not see, as for one that is not there', async () => {
    const asked = (poolId: string) => p.json(p.other.token, 'POST', '/v1/reservations', { body: wish({ poolId }) });
    const hidden = await asked(p.fleet.poolId);
    const nowhere = newId('pool');
    expectProblem(hidden, 404, 'NOT_FOUND');
    expect(hidden.body.detail.replace(p.fleet.poolId, 'X')).toBe(
      (await asked(nowhere)).body.detail.replace(nowhere, 'X'),
    );
  });
});

describe('what is asked in vain', () => {
  const CASES: readonly [string, () => Promise<Answer>, number, string, string?][] = [
    ['a path that is not there', () => p.json(p.tenant.token, 'GET', '/v1/planets'), 404, 'NOT_FOUND'],
    [
      'a method that the path does not take',
      () => p.json(p.tenant.token, 'DELETE', '/v1/usage'),
      405,
      'METHOD_NOT_ALLOWED',
    ],
    [
      'a thing that is not there',
      () => p.json(p.tenant.token, 'GET', `/v1/reservations/${newId('reservation')}`),
      404,
      'NOT_FOUND',
    ],
    ['an id that is none', () => p.json(p.tenant.token, 'GET', '/v1/reservations/7'), 400, 'INVALID_REQUEST', 'id'],
    [
      'an id of another kind',
      () => p.json(p.tenant.token, 'GET', `/v1/reservations/${newId('pool')}`),
      400,
      'INVALID_REQUEST',
      'id',
    ],
    [
      'a parameter that is not known',
      () => p.json(p.tenant.token, 'GET', '/v1/reservations?colour=red'),
      400,
      'INVALID_REQUEST',
      'colour',
    ],
    [
      'a page of no size',
      () => p.json(p.tenant.token, 'GET', '/v1/reservations?limit=0'),
      400,
      'INVALID_REQUEST',
      'limit',
    ],
    [
      'a cursor that nobody gave',
      () => p.json(p.tenant.token, 'GET', '/v1/reservations?cursor=abc'),
      400,
      'INVALID_CURSOR',
    ],
    ['no credential', () => p.json(undefined, 'GET', '/v1/pools'), 401, 'UNAUTHENTICATED'],
    ['a credential that is none', () => p.json('nonsense', 'GET', '/v1/pools'), 401, 'UNAUTHENTICATED'],
    [
      'another scheme',
      () => p.json(undefined, 'GET', '/v1/pools', { headers: { authorization: 'Basic YTpi' } }),
      401,
      'UNAUTHENTICATED',
    ],
  ];
  test.for(CASES)('%s', async ([, ask, status, code, field]) => {
    expectProblem(await ask(), status, code, field);
  });

  test('the methods that a path takes are named, and how to prove who one is', async () => {
    expect((await p.fetch(p.tenant.token, 'DELETE', '/v1/reservations')).headers.get('allow')).toBe('POST, GET');
    expect((await p.fetch(undefined, 'GET', '/v1/pools')).headers.get('www-authenticate')).toBe('Bearer');
  });

  test('more than there is, with what stands in the way', async () => {
    const answer = await p.json(p.tenant.token, 'POST', '/v1/reservations', {
      body: wish({ devices: [{ class: 'gpu', count: 9 }] }),
    });
    expectProblem(answer, 409, 'CAPACITY_UNAVAILABLE');
    expect(answer.body).toMatchObject({
      wanted: 9,
      reasons: [{ code: 'TOO_FEW_DEVICES', nodes: 1, message: 'has 8 gpu, wanted 9' }],
    });
  });
});

describe('a repeated call', () => {
  test('is answered as it was, byte by byte, and does nothing', async () => {
    const key = 'once';
    const first = await p.fetch(p.tenant.token, 'POST', '/v1/reservations', { body: wish({ name: 'once' }), key });
    const text = await first.text();
    // Other order and spelling, the same request.
    const raw = `{ "durationSeconds": 6.0e2, "name": "once", "devices": [{ "count": 1.0, "class": "gpu" }],\n "poolId": "${p.fleet.poolId}" }`;
    const again = await p.fetch(p.tenant.token, 'POST', '/v1/reservations', { raw, key });
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(await again.text()).toBe(text);
    const [n] = await p.t.db.query("select count(*)::int as n from reservations where name = 'once'");
    expect(n).toEqual({ n: 1 });
  });

  test('with another body is refused, and does nothing', async () => {
    const key = 'twice';
    expect(
      (await p.fetch(p.tenant.token, 'POST', '/v1/reservations', { body: wish({ name: 'twice' }), key })).status,
    ).toBe(201);
    expectProblem(
      await p.json(p.tenant.token, 'POST', '/v1/reservations', { body: wish({ name: 'thrice' }), key }),
      422,
      'IDEMPOTENCY_MISMATCH',
    );
    const [n] = await p.t.db.query("select count(*)::int as n from reservations where name = 'thrice'");
    expect(n).toEqual({ n: 0 });
  });
});

test('a version that has passed is refused, and the present one taken', async () => {
  const site = await p.json(p.root.token, 'POST', '/v1/sites', { body: { name: 'fra' } });
  const path = `/v1/sites/${site.body.id}`;
  const etag = (await p.fetch(p.root.token, 'GET', path)).headers.get('etag')!;
  const rename = (name: string, ifMatch: string) =>
    p.json(p.root.token, 'PATCH', path, { body: { name }, headers: { 'if-match': ifMatch } });
  expect((await rename('ams', etag)).status).toBe(200);
  expectProblem(await rename('par', etag), 412, 'VERSION_CONFLICT');
  expectProblem(await rename('par', 'new'), 400, 'INVALID_REQUEST', 'If-Match');
});

test('a key made at the identity face opens the API, as far as its policies go, until it is revoked', async () => {
  // biome-ignore lint/suspicious/noExplicitAny: the identity service's own answers.
  const iam = async (method: string, body: object): Promise<any> => {
    const answer = await p.json(p.tenant.token, 'POST', `/api/iam/${method}`, {
      body: { tenantId: p.tenant.id, ...body },
      headers: { 'x-better-iam': '1' },
    });
    expect([method, answer.status]).toEqual([method, 200]);
    return answer.body.data;
  };
  const { identity } = await iam('identities/create', { kind: 'service', name: 'robot' });
  const { role } = await iam('roles/create', { name: 'reader', permissions: ['compute:pools:list'] });
  await iam('bindings/create', { subjectType: 'identity', subjectId: identity.id, roleId: role.id });
  const key = await iam('apiKeys/create', { identityId: identity.id, name: 'robot' });
  expect((await p.json(key.token, 'GET', '/v1/pools')).body.items).toHaveLength(1);
  expectProblem(await p.json(key.token, 'POST', '/v1/reservations', { body: wish() }), 403, 'PERMISSION_DENIED');
  await iam('apiKeys/revoke', { apiKeyId: key.apiKey.id });
  // A change is refused at once; a list may be answered for two seconds from what is kept.
  expectProblem(await p.json(key.token, 'POST', '/v1/reservations', { body: wish() }), 401, 'UNAUTHENTICATED');
});

test('the document, its references and the pages are there', async () => {
  const document = (await p.json(undefined, 'GET', '/v1/openapi.json')).body;
  expect(document.openapi).toBe('3.1.0');
  expect(document.servers).toEqual([{ url: p.edge.url }]);
  const refs = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)].map((m) => m[1]!);
  for (const ref of new Set(refs)) {
    expect(
      ref.split('/').reduce((at, part) => at?.[part], document),
      ref,
    ).toBeDefined();
  }
  for (const path of ['/v1/docs', '/v1/errors']) {
    const page = await p.fetch(undefined, 'GET', path);
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=UTF-8']);
  }
  expect((await p.json(undefined, 'GET', '/healthz')).body).toEqual({ ok: true });
  expect((await p.json(undefined, 'GET', '/readyz')).body).toEqual({ ok: true });
});
