/**
 * IamPort, the same cases on both adapters: embedded over the tables, and remote over HTTP to the face of an embedded
 * engine on the same tables. What one answers, the other answers.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AuthzResource, IamPort } from '#core/iam/port.ts';
import { ROOT } from '#core/iam/root.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
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
  serviceToken,
  t,
} from '#kit/iam-world.ts';
import { serve } from '#kit/serve.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import { remoteIam } from '#plugins/iam/remote.ts';

beforeAll(openIamWorld);
afterAll(closeIamWorld);

const adapters: Record<string, () => IamPort> = {
  embedded: () => embeddedIam(t.db, { clock: systemClock, catalog }),
  'embedded over the Workers handle': () => embeddedIam(t.neon, { clock: systemClock, catalog }),
  remote: () =>
    remoteIam({
      baseUrl: `${face.url}/api/iam`,
      clock: systemClock,
      rootTenantId: ROOT,
      serviceToken,
      deadlineMs: 10_000,
    }),
};

describe.each(Object.keys(adapters))('%s', (which) => {
  let iam: IamPort;
  beforeAll(() => {
    iam = adapters[which]!();
  });
  const decide = async (token: string, action: string, resource: AuthzResource) => {
    const caller = await iam.authenticate(token, meta);
    const { allowed, reason } = await iam.authorize(caller, action, resource, meta);
    return [allowed, reason];
  };

  test('tells who calls', async () => {
    const org = await organisation();
    const caller = await iam.authenticate(org.owner, meta);
    expect(caller).toMatchObject({
      identityKind: 'user',
      tenantId: org.tenantId,
      sessionKind: 'user',
      mfa: false,
      rootTenant: false,
    });
    expect(JSON.stringify({ ...caller, credential: undefined })).not.toContain('biam_');
    expect(await iam.authenticate(boot.operatorToken!, meta)).toMatchObject({
      tenantId: ROOT,
      mfa: true,
      rootTenant: true,
    });
    expect(await iam.authenticate(boot.tenantApiKey!, meta)).toMatchObject({
      identityKind: 'service',
      sessionKind: 'api-key',
    });
  });

  test.each([
    ['nothing', undefined],
    ['a flipped character', 'flip'],
    ['nonsense', 'x'],
    ['a token nobody made', 'biam_ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'],
  ])('refuses %s', async (_, token) => {
    const given =
      token === 'flip' ? boot.operatorToken!.slice(0, -1) + (boot.operatorToken!.endsWith('A') ? 'B' : 'A') : token;
    expect(await codeOf(iam.authenticate(given, meta))).toBe('UNAUTHENTICATED');
  });

  test('a revoked session and a suspended person are out', async () => {
    const org = await organisation();
    const [a, b] = [await org.person(undefined), await org.person(undefined)];
    const caller = await iam.authenticate(a.token, meta);
    await iam.authenticate(b.token, meta);
    await ok('sessions/revoke', a.token, { tenantId: org.tenantId, sessionId: caller.sessionId });
    await ok('identities/update', org.owner, { tenantId: org.tenantId, identityId: b.id, status: 'suspended' });
    const later = adapters[which]!();
    expect(await codeOf(later.authenticate(a.token, meta))).toBe('UNAUTHENTICATED');
    expect(await codeOf(later.authenticate(b.token, meta))).toBe('UNAUTHENTICATED');
  });

  test('decides on attributes and owner, collections, unknown actions', async () => {
    const org = await organisation();
    const p = await org.person([
      allow(['compute:reservations:create'], ['compute-reservation/*'], {
        NumericLessThanEquals: { 'resource.gpus': 8 },
      }),
      allow(['compute:reservations:read'], ['*'], { StringEquals: { 'resource.ownerId': `$\{principal.id}` } }),
      allow(['compute:pools:read'], ['compute-pool/*']),
    ]);
    const small = await org.row({ attributes: { gpus: 8 } });
    const large = await org.row({ attributes: { gpus: 9 } });
    const own = await org.row({ ownerId: p.id });
    expect(await decide(p.token, 'compute:reservations:create', small)).toEqual([true, 'allowed']);
    expect(await decide(p.token, 'compute:reservations:create', large)).toEqual([false, 'ACCESS_DENIED']);
    expect(await decide(p.token, 'compute:reservations:read', own)).toEqual([true, 'allowed']);
    expect(await decide(p.token, 'compute:reservations:read', small)).toEqual([false, 'ACCESS_DENIED']);
    const pools: AuthzResource = { type: 'compute-pool', id: '*', tenantId: org.tenantId };
    expect(await decide(p.token, 'compute:pools:read', pools)).toEqual([true, 'allowed']);
    expect(await decide(p.token, 'compute:pools:reed', pools)).toEqual([false, 'ACCESS_DENIED']);
    const caller = await iam.authenticate(p.token, meta);
    expect(await codeOf(iam.require(caller, 'compute:reservations:create', large, meta))).toBe('PERMISSION_DENIED');
    const many = await iam.authorizeMany(
      caller,
      [small, large, small].map((resource) => ({ action: 'compute:reservations:create', resource })),
      meta,
    );
    expect(many.map((d) => d.allowed)).toEqual([true, false, true]);
  });

  test('other tenants: denied, unknown: not found, root override: allowed', async () => {
    const [a, b] = [await organisation(), await organisation()];
    const theirs = await b.row();
    expect(await decide(a.owner, 'compute:reservations:read', theirs)).toEqual([false, 'ACCESS_DENIED']);
    expect(await decide(boot.operatorToken!, 'compute:reservations:read', theirs)).toEqual([true, 'ROOT_OVERRIDE']);
    expect(await decide(boot.operatorToken!, 'compute:reservations:reed', theirs)).toEqual([false, 'ACCESS_DENIED']);
    // A key of the root tenant does not cross.
    expect(await decide(serviceToken, 'compute:reservations:read', theirs)).toEqual([false, 'ACCESS_DENIED']);
    const nowhere: AuthzResource = { type: 'compute-pool', id: '*', tenantId: 'tnt_gone' };
    expect(await codeOf(decide(a.owner, 'compute:pools:read', nowhere))).toBe('NOT_FOUND');
  });

  test('a suspended tenant is out, and so is what is below it', async () => {
    const org = await organisation();
    const child = await ok('tenants/create', org.owner, {
      tenantId: org.tenantId,
      type: 'project',
      name: 'child',
      slug: `${org.slug}-child`,
      owner: { name: 'owner' },
    });
    expect(await codeOf(iam.authenticate(child.session.token, meta))).toBe('nothing thrown');
    await ok('tenants/update', boot.operatorToken!, { tenantId: org.tenantId, status: 'suspended' });
    const later = adapters[which]!();
    for (const token of [org.owner, child.session.token]) {
      expect(await codeOf(later.authenticate(token, meta))).toBe('PERMISSION_DENIED');
    }
  });

  test('boundaries of tenant, person and key narrow what a role grants', async () => {
    const org = await organisation();
    const only = (action: string) => ({ version: 1, statements: [allow([action])] });
    const p = await org.person([allow(['compute:*'])], { boundary: only('compute:pools:*') });
    const pool: AuthzResource = { type: 'compute-pool', id: '*', tenantId: org.tenantId };
    const node: AuthzResource = { type: 'compute-node', id: '*', tenantId: org.tenantId };
    expect(await decide(p.token, 'compute:pools:read', pool)).toEqual([true, 'allowed']);
    expect(await decide(p.token, 'compute:nodes:read', node)).toEqual([false, 'ACCESS_DENIED']);
    const service = await ok('identities/create', org.owner, { tenantId: org.tenantId, kind: 'service', name: 'ci' });
    await ok('bindings/create', org.owner, {
      tenantId: org.tenantId,
      subjectType: 'identity',
      subjectId: service.identity.id,
      roleId: p.roleId,
    });
    const key = await ok('apiKeys/create', org.owner, {
      tenantId: org.tenantId,
      identityId: service.identity.id,
      name: 'ci',
      scopes: ['compute:nodes:*'],
    });
    expect(await decide(key.token, 'compute:nodes:read', node)).toEqual([true, 'allowed']);
    expect(await decide(key.token, 'compute:pools:read', pool)).toEqual([false, 'ACCESS_DENIED']);
    await ok('tenants/update', boot.operatorToken!, { tenantId: org.tenantId, boundary: only('compute:pools:*') });
    // The embedded engine of this isolate may allow for two more seconds; another sees it at once.
    iam = adapters[which]!();
    expect(await decide(key.token, 'compute:nodes:read', node)).toEqual([false, 'ACCESS_DENIED']);
  });

  test('groups and inherited roles grant, an ended binding does not', async () => {
    const org = await organisation();
    const p = await org.person(undefined);
    const pool: AuthzResource = { type: 'compute-pool', id: '*', tenantId: org.tenantId };
    const base = { tenantId: org.tenantId };
    const policy = await ok('policies/create', org.owner, {
      ...base,
      name: 'read',
      document: { version: 1, statements: [allow(['compute:pools:read'])] },
    });
    const low = await ok('roles/create', org.owner, { ...base, name: 'low', policyIds: [policy.policy.id] });
    const high = await ok('roles/create', org.owner, { ...base, name: 'high', inherits: [low.role.id] });
    const group = await ok('groups/create', org.owner, { ...base, name: 'ops' });
    await ok('groups/addMember', org.owner, { ...base, groupId: group.group.id, identityId: p.id });
    const bind = (extra: object) =>
      ok('bindings/create', org.owner, {
        ...base,
        subjectType: 'group',
        subjectId: group.group.id,
        roleId: high.role.id,
        ...extra,
      });
    const past = await bind({ expiresAt: systemClock.now() - 60_000 });
    expect(await decide(p.token, 'compute:pools:read', pool)).toEqual([false, 'ACCESS_DENIED']);
    await ok('bindings/delete', org.owner, { ...base, bindingId: past.binding.id });
    const future = await bind({ startsAt: systemClock.now() + 3_600_000 });
    expect(await decide(p.token, 'compute:pools:read', pool)).toEqual([false, 'ACCESS_DENIED']);
    await ok('bindings/delete', org.owner, { ...base, bindingId: future.binding.id });
    await bind({});
    // Denied a moment ago, allowed now: a grant takes effect at once.
    expect(await decide(p.token, 'compute:pools:read', pool)).toEqual([true, 'allowed']);
  });

  test('an agent acts for a person, within the delegation, and asks where the person wants to be asked', async () => {
    const org = await organisation();
    const p = await org.person([allow(['compute:reservations:*', 'compute:pools:read'])]);
    const base = { tenantId: org.tenantId };
    const agent = await ok('identities/create', org.owner, { ...base, kind: 'agent', name: 'robot', sponsorId: p.id });
    const key = await ok('apiKeys/create', org.owner, { ...base, identityId: agent.identity.id, name: 'robot' });
    const { delegation } = await ok('delegations/request', key.token, {
      ...base,
      personId: p.id,
      reason: 'to train',
      scopes: ['compute:reservations:*', 'compute:nodes:*'],
      confirm: ['compute:*:create', 'compute:nodes:*'],
    });
    expect((await call('delegations/assume', key.token, { ...base, delegationId: delegation.id })).code).toBe(
      'DELEGATION_INACTIVE',
    );
    expect((await call('delegations/approve', key.token, { ...base, delegationId: delegation.id })).code).toBe(
      'NOT_FOUND',
    );
    await ok('delegations/approve', p.token, { ...base, delegationId: delegation.id });
    const { token } = await ok('delegations/assume', key.token, { ...base, delegationId: delegation.id });

    const caller = await iam.authenticate(token, meta);
    expect(caller).toMatchObject({
      identityId: p.id,
      sessionKind: 'delegated',
      agentId: agent.identity.id,
      mfa: false,
    });
    const row = await org.row();
    const pool: AuthzResource = { type: 'compute-pool', id: '*', ...base };
    expect(await decide(token, 'compute:reservations:read', row)).toEqual([true, 'allowed']);
    expect(await decide(token, 'compute:pools:read', pool)).toEqual([false, 'ACCESS_DENIED']);
    expect(await decide(token, 'compute:reservations:create', row)).toEqual([false, 'CONFIRMATION_REQUIRED']);
    // Held back, but not the person's to give: the embedded engine knows, a remote service does not tell.
    const node: AuthzResource = { type: 'compute-node', id: '*', ...base };
    const reason = which === 'remote' ? 'CONFIRMATION_REQUIRED' : 'ACCESS_DENIED';
    expect(await decide(token, 'compute:nodes:drain', node)).toEqual([false, reason]);

    expect(await codeOf(iam.require(caller, 'compute:reservations:create', row, meta))).toBe('CONFIRMATION_REQUIRED');
    const asked = await iam.requestConfirmation(caller, 'compute:reservations:create', row, 'again');
    const { confirmations } = await ok('delegations/listConfirmations', p.token, { ...base, status: 'pending' });
    expect(confirmations.map((c: { id: string }) => c.id)).toEqual([asked.id]);
    expect(await codeOf(iam.requestConfirmation(caller, 'compute:reservations:read', row, 'x'))).toBe(
      'INVALID_REQUEST',
    );
    const answer = { ...base, confirmationId: asked.id, approve: true };
    expect((await call('delegations/decideConfirmation', token, answer)).code).toBe('ACCESS_DENIED');
    await ok('delegations/decideConfirmation', p.token, answer);
    expect(await decide(token, 'compute:reservations:create', row)).toEqual([true, 'allowed']);
    expect(await decide(token, 'compute:reservations:create', await org.row())).toEqual([
      false,
      'CONFIRMATION_REQUIRED',
    ]);

    await ok('delegations/revoke', p.token, { ...base, delegationId: delegation.id });
    expect(await codeOf(adapters[which]!().authenticate(token, meta))).toBe('UNAUTHENTICATED');
  });

  test('usage is recorded once, features follow their tenant', async () => {
    const org = await organisation();
    const event = {
      tenantId: org.tenantId,
      meter: 'gpu.hours',
      quantity: 1.5,
      occurredAt: fromMillis(systemClock.now()),
    };
    const many = Array.from({ length: 120 }, (_, i) => ({ ...event, idempotencyKey: `k${i}` }));
    await iam.recordUsage(many);
    await iam.recordUsage(many.slice(0, 3));
    const [sum] = await t.db.query<{ n: number; s: string }>(
      'select count(*) as n, sum(quantity)::float8::text as s from iam.usage where tenant_id = $1',
      [org.tenantId],
    );
    expect(sum).toEqual({ n: 120, s: '180' });
    expect(await codeOf(iam.recordUsage([{ ...many[0]!, meter: 'other' }]))).toBe('CONFLICT');
    const caller = await iam.authenticate(org.owner, meta);
    expect(await iam.billingCheck(caller, org.tenantId)).toMatchObject({ allowed: true });
    expect(await codeOf(iam.billingCheck(caller, ROOT))).toBe('PERMISSION_DENIED');
    const key = `flag-${org.slug}`;
    expect(await iam.featureEnabled(caller, org.tenantId, key)).toBe(false);
    const set = { tenantId: org.tenantId, key, enabled: true };
    expect((await call('features/set', org.owner, set)).code).toBe('NOT_FOUND');
    await ok('features/set', boot.operatorToken!, { tenantId: ROOT, key, enabled: false });
    await ok('features/set', org.owner, set);
    const later = adapters[which]!();
    const again = await later.authenticate(org.owner, meta);
    expect(await later.featureEnabled(again, org.tenantId, key)).toBe(true);
    expect(await codeOf(later.featureEnabled(again, ROOT, key))).toBe('PERMISSION_DENIED');
  });
});

describe('the remote adapter fails closed', () => {
  const to = async (
    handler: (request: Request) => Response | Promise<Response>,
    work: (iam: IamPort) => Promise<void>,
  ) => {
    const other = await serve(handler);
    try {
      await work(remoteIam({ baseUrl: other.url, clock: systemClock, rootTenantId: ROOT, deadlineMs: 300 }));
    } finally {
      await other.close();
    }
  };
  test.each<[string, () => Response | Promise<Response>, string]>([
    [
      'a redirect',
      () => new Response(null, { status: 302, headers: { location: 'http://127.0.0.1:1/' } }),
      'IAM_UNAVAILABLE',
    ],
    ['a page', () => new Response('<html>'), 'IAM_UNAVAILABLE'],
    ['no data', () => Response.json({}), 'IAM_UNAVAILABLE'],
    ['another shape', () => Response.json({ data: { identityId: 1 } }), 'IAM_UNAVAILABLE'],
    [
      'a server error',
      () => Response.json({ error: { code: 'ACCESS_DENIED', message: '' } }, { status: 500 }),
      'IAM_UNAVAILABLE',
    ],
    ['an endless answer', () => new Response('x'.repeat(2_000_000)), 'IAM_UNAVAILABLE'],
    ['silence', () => new Promise<Response>(() => {}), 'IAM_UNAVAILABLE'],
    [
      'a long rate limit',
      () => Response.json({ error: { code: 'RATE_LIMITED', message: '', retryAfterMs: 60_000 } }, { status: 429 }),
      'RATE_LIMITED',
    ],
    [
      '401',
      () => Response.json({ error: { code: 'UNAUTHENTICATED', message: '' } }, { status: 401 }),
      'UNAUTHENTICATED',
    ],
  ])('%s', async (_, handler, code) => {
    await to(handler, async (iam) => {
      expect(await codeOf(iam.authenticate(boot.operatorToken!, meta))).toBe(code);
    });
  });

  test('nobody listens', async () => {
    const iam = remoteIam({ baseUrl: 'http://127.0.0.1:1', clock: systemClock, rootTenantId: ROOT });
    expect(await codeOf(iam.authenticate(boot.operatorToken!, meta))).toBe('IAM_UNAVAILABLE');
  });
});
