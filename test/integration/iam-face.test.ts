/** The identity service's face: what it refuses, and what its management keeps. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '#core/iam/root.ts';
import { systemClock } from '#core/kernel/time.ts';
import {
  allow,
  boot,
  call,
  catalog,
  closeIamWorld,
  codeOf,
  face,
  meta,
  ok,
  openIamWorld,
  organisation,
  t,
} from '#kit/iam-world.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';

beforeAll(openIamWorld);
afterAll(closeIamWorld);

describe('the face', () => {
  test.each([
    ['no X-Better-IAM', { 'x-better-iam': '0' }, '{}', 403, 'CSRF_REJECTED'],
    ['a cookie', { cookie: 'a=b' }, '{}', 403, 'CSRF_REJECTED'],
    ['text', { 'content-type': 'text/plain' }, '{}', 400, 'INVALID_INPUT'],
    ['broken JSON', {}, '{', 400, 'INVALID_INPUT'],
    ['an unknown field', {}, '{"a":1}', 400, 'INVALID_INPUT'],
    ['too much', {}, JSON.stringify({ a: 'x'.repeat(70_000) }), 413, 'PAYLOAD_TOO_LARGE'],
  ])('refuses %s', async (_, headers, body, status, code) => {
    const answer = await call('sts/getCallerIdentity', boot.operatorToken!, body, headers as Record<string, string>);
    expect([answer.status, answer.code]).toEqual([status, code]);
  });

  test('unknown routes, other methods, request ids', async () => {
    expect((await call('roles/creat', boot.operatorToken!, {})).status).toBe(404);
    expect((await call('toString', boot.operatorToken!, {})).status).toBe(404);
    expect((await fetch(`${face.url}/api/iam/authorize`)).status).toBe(405);
    const response = await fetch(`${face.url}/api/iam/sts/getCallerIdentity`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-better-iam': '1', 'x-request-id': 'r-1' },
      body: '{}',
    });
    expect([response.status, response.headers.get('x-request-id'), response.headers.get('cache-control')]).toEqual([
      401,
      'r-1',
      'no-store',
    ]);
  });

  test('policies are checked against the catalog when they are saved', async () => {
    const org = await organisation();
    const save = async (statement: object) =>
      (
        await call('policies/create', org.owner, {
          tenantId: org.tenantId,
          name: 'x',
          document: { version: 1, statements: [statement] },
        })
      ).code;
    expect(await save(allow(['compute:nodes:reed']))).toBe('INVALID_ACTION');
    expect(await save(allow(['*'], ['compute-nod/x']))).toBe('INVALID_RESOURCE_TYPE');
    expect(await save(allow(['*'], ['*'], { ArrayContains: { 'principal.teams': 'a' } }))).toBe('INVALID_POLICY');
    expect(await save(allow(['*'], ['*'], { StringEquals: { 'principal.department': 'ml' } }))).toBeUndefined();
    const test = {
      tenantId: org.tenantId,
      document: { version: 1, statements: [allow(['a:b'])] },
      action: 'a:b',
      resource: 'x/y',
    };
    expect(await ok('policies/test', org.owner, test)).toMatchObject({ allowed: true, reason: 'allowed' });
  });

  test('management needs permission, versions guard, what is in use stays, roles do not inherit themselves', async () => {
    const org = await organisation();
    const base = { tenantId: org.tenantId };
    const p = await org.person(undefined);
    expect((await call('roles/list', p.token, base)).code).toBe('ACCESS_DENIED');
    expect((await call('roles/list', p.token, { tenantId: ROOT })).code).toBe('ACCESS_DENIED');
    const document = { version: 1, statements: [allow(['compute:pools:read'])] };
    const { policy } = await ok('policies/create', org.owner, { ...base, name: 'p', document });
    expect((await call('policies/create', org.owner, { ...base, name: 'p', document })).code).toBe('CONFLICT');
    await ok('policies/update', org.owner, { ...base, policyId: policy.id, document, version: 1 });
    expect(
      (await call('policies/update', org.owner, { ...base, policyId: policy.id, document, version: 1 })).code,
    ).toBe('VERSION_CONFLICT');
    const { role: a } = await ok('roles/create', org.owner, { ...base, name: 'a', policyIds: [policy.id] });
    const { role: b } = await ok('roles/create', org.owner, { ...base, name: 'b', inherits: [a.id] });
    expect((await call('roles/update', org.owner, { ...base, roleId: a.id, inherits: [b.id] })).code).toBe(
      'INVALID_INPUT',
    );
    expect((await call('policies/delete', org.owner, { ...base, policyId: policy.id })).code).toBe('RESOURCE_IN_USE');
    expect((await call('roles/delete', org.owner, { ...base, roleId: a.id })).code).toBe('RESOURCE_IN_USE');
    await ok('roles/delete', org.owner, { ...base, roleId: b.id });
    const binding = { ...base, subjectType: 'identity', subjectId: p.id, roleId: a.id };
    expect((await call('bindings/create', org.owner, { ...binding, window: { days: [1] } })).code).toBe(
      'INVALID_INPUT',
    );
    const other = await organisation();
    expect((await call('bindings/create', other.owner, { ...binding, tenantId: other.tenantId })).code).toBe(
      'NOT_FOUND',
    );
  });

  test('a NUL is an invalid value, and grants past all measure are none', async () => {
    const org = await organisation();
    const base = { tenantId: org.tenantId };
    expect((await call('roles/create', org.owner, { ...base, name: 'a\u0000b' })).code).toBe('INVALID_INPUT');
    const p = await org.person(undefined);
    const fat = allow(
      ['compute:pools:read'],
      Array.from({ length: 100 }, (_, i) => `compute-pool/${'x'.repeat(480)}${i}`),
    );
    for (let i = 0; i < 22; i++) {
      const document = { version: 1, statements: [fat] };
      const { role } = await ok('roles/create', org.owner, { ...base, name: `fat-${i}`, document });
      await ok('bindings/create', org.owner, { ...base, subjectType: 'identity', subjectId: p.id, roleId: role.id });
    }
    expect((await call('sts/getCallerIdentity', p.token, {})).code).toBe('LIMIT_EXCEEDED');
    expect(await codeOf(embeddedIam(t.db, { clock: systemClock, catalog }).authenticate(p.token, meta))).toBe(
      'PERMISSION_DENIED',
    );
  });

  test('a key issued from a narrow credential is as narrow', async () => {
    const org = await organisation();
    const base = { tenantId: org.tenantId };
    const service = await ok('identities/create', org.owner, { ...base, kind: 'service', name: 'admin' });
    const { roles } = await ok('roles/list', org.owner, base);
    await ok('bindings/create', org.owner, {
      ...base,
      subjectType: 'identity',
      subjectId: service.identity.id,
      roleId: roles[0].id,
    });
    const first = await ok('apiKeys/create', org.owner, {
      ...base,
      identityId: service.identity.id,
      name: 'narrow',
      scopes: ['iam:*'],
    });
    const second = await ok('apiKeys/create', first.token, { ...base, identityId: service.identity.id, name: 'wide' });
    const pools = { ...base, action: 'compute:pools:read', resource: { type: 'compute-pool', id: '*' } };
    expect((await ok('authorize', second.token, pools)).allowed).toBe(false);
  });

  test('a resource of another tenant is a mismatch, one that is not projected is not there', async () => {
    const [a, b] = [await organisation(), await organisation()];
    const theirs = await b.row();
    const ask = (id: string) =>
      call('authorize', a.owner, {
        tenantId: a.tenantId,
        action: 'compute:reservations:read',
        resource: { type: 'compute-reservation', id },
      });
    expect((await ask(theirs.id)).code).toBe('RESOURCE_MISMATCH');
    expect((await ask('rsv_none')).code).toBe('NOT_FOUND');
  });
});
