/** What the embedded engine promises beside its answers: how long it may be stale, that a write is never, and its books. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { iamCatalog } from '#core/iam/catalog.ts';
import type { AuthzResource } from '#core/iam/port.ts';
import { ROOT } from '#core/iam/root.ts';
import { canonicalJson, type Json, sha256Hex } from '#core/kernel/canonical-json.ts';
import { SqlError } from '#core/kernel/database.ts';
import { isProblem } from '#core/kernel/errors.ts';
import { type Clock, systemClock } from '#core/kernel/time.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { seedRoot, seedStranger, seedTenant } from '#kit/tenants.ts';
import { bootstrapIam, isLoopback } from '#plugins/iam/bootstrap.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';

const catalog = iamCatalog(['compute:pools:read', 'compute:pools:update']);
const meta = { requestId: 'r', sourceIp: '203.0.113.9' };
const ALL = { version: 1, statements: [{ effect: 'allow', actions: ['compute:*'], resources: ['*'] }] };

let t: TestDatabase;
beforeAll(async () => {
  t = await testDatabase();
  await seedRoot(t.db);
});
afterAll(() => t?.close());

/** A clock that stands until it is moved. */
function handClock(): Clock & { move(ms: number): void } {
  let at = 1_000;
  return {
    now: () => at,
    sleep: systemClock.sleep,
    move(ms) {
      at += ms;
    },
  };
}
const pool = (tenantId: string): AuthzResource => ({ type: 'compute-pool', id: '*', tenantId });

describe('staleness', () => {
  test('an old allow lasts two seconds at most, and its epoch lets no write through', async () => {
    const org = await seedTenant(t.db, 'Stale', ALL);
    const clock = handClock();
    const iam = embeddedIam(t.db, { clock, catalog });
    const first = await iam.authenticate(org.token, meta);
    const before = await iam.authorize(first, 'compute:pools:update', pool(org.id), meta);
    await t.db.query('delete from iam.bindings where tenant_id = $1', [org.id]);

    const second = await iam.authenticate(org.token, meta);
    const stale = await iam.authorize(second, 'compute:pools:update', pool(org.id), meta);
    expect(stale).toEqual({ allowed: true, reason: 'allowed', policyEpoch: before.policyEpoch });
    const write = t.db.query('select policy_fence($1)', [stale.policyEpoch!]);
    await expect(write).rejects.toSatisfy((e) => e instanceof SqlError && e.sqlstate === 'BC005');
    // The same question once more in the same request is decided afresh.
    const again = await iam.authorize(second, 'compute:pools:update', pool(org.id), meta);
    expect(again).toMatchObject({ allowed: false, reason: 'ACCESS_DENIED' });
    expect(again.policyEpoch).toBeGreaterThan(stale.policyEpoch!);
  });

  test('after two seconds it is read again', async () => {
    const org = await seedTenant(t.db, 'Aged', ALL);
    const clock = handClock();
    const iam = embeddedIam(t.db, { clock, catalog });
    const caller = await iam.authenticate(org.token, meta);
    await t.db.query('update iam.credentials set revoked_at = compute_now() where tenant_id = $1', [org.id]);
    expect((await iam.authorize(caller, 'compute:pools:read', pool(org.id), meta)).allowed).toBe(true);
    clock.move(2_000);
    await expect(iam.authenticate(org.token, meta)).rejects.toSatisfy(
      (e) => isProblem(e) && e.code === 'UNAUTHENTICATED',
    );
    await expect(iam.authorize(caller, 'compute:pools:update', pool(org.id), meta)).rejects.toSatisfy(
      (e) => isProblem(e) && e.code === 'UNAUTHENTICATED',
    );
  });

  test('what ends, ends on time although it is remembered', async () => {
    const org = await seedTenant(t.db, 'Ends', ALL);
    await t.db.query(
      "update iam.bindings set expires_at = compute_now() + interval '60 seconds' where tenant_id = $1",
      [org.id],
    );
    const clock = handClock();
    const iam = embeddedIam(t.db, { clock, catalog });
    const caller = await iam.authenticate(org.token, meta);
    expect((await iam.authorize(caller, 'compute:pools:read', pool(org.id), meta)).allowed).toBe(true);
    await t.db.query(
      "update iam.credentials set expires_at = compute_now() + interval '1 second' where tenant_id = $1",
      [org.id],
    );
    const iam2 = embeddedIam(t.db, { clock, catalog });
    await iam2.authenticate(org.token, meta);
    clock.move(1_500);
    await expect(iam2.authenticate(org.token, meta)).rejects.toSatisfy(
      (e) => isProblem(e) && e.code === 'UNAUTHENTICATED',
    );
  });
});

describe('epoch', () => {
  const epoch = async () => (await t.db.query<{ epoch: number }>('select epoch from iam.policy_epoch'))[0]!.epoch;
  test('rises once a transaction for what alters decisions, and not for what does not', async () => {
    const org = await seedTenant(t.db, 'Epoch', ALL);
    const start = await epoch();
    await seedStranger(t.db, org.id);
    expect(await epoch()).toBe(start);
    await t.db.transaction(async (tx) => {
      await tx.query(
        'update iam.roles set document = document || \'{"version":1,"statements":[]}\' where tenant_id = $1',
        [org.id],
      );
      await tx.query("update iam.tenants set status = 'suspended' where id = $1", [org.id]);
    });
    expect(await epoch()).toBe(start + 1);
    await t.db.query("update iam.tenants set name = 'x' where id = $1", [org.id]);
    expect(await epoch()).toBe(start + 1);
  });
});

describe('audit', () => {
  test('denials and root overrides stand in a chain that anyone can recompute', async () => {
    const root = await seedRoot(t.db);
    const org = await seedTenant(t.db, 'Audited', ALL);
    const stranger = await seedStranger(t.db, org.id);
    const iam = embeddedIam(t.db, { clock: systemClock, catalog });
    const [a, b] = [await iam.authenticate(stranger.token, meta), await iam.authenticate(root.token, meta)];
    await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        iam.authorize(i % 2 ? a : b, 'compute:pools:read', { ...pool(org.id), id: `pöol "${i}"\n😀` }, meta),
      ),
    );
    const chain = await t.db.query<{
      record: Record<string, Json>;
      hash: string;
      previous_hash: string;
      sequence: number;
    }>('select * from iam.audit where tenant_id = $1 order by sequence', [org.id]);
    expect(chain).toHaveLength(8);
    let previous = '0'.repeat(64);
    for (const [i, link] of chain.entries()) {
      expect(link.sequence).toBe(i + 1);
      expect(link.previous_hash).toBe(previous);
      expect(sha256Hex(canonicalJson(link.record))).toBe(link.hash);
      previous = link.hash;
    }
    expect(chain.filter((link) => link.record['rootOverride'] === true)).toHaveLength(4);
    const denied = chain.find((link) => link.record['outcome'] === 'deny')!.record;
    expect(denied).toMatchObject({ action: 'compute:pools:read', actorId: stranger.identityId, tenantId: org.id });
    expect(denied['metadata']).toMatchObject({
      reason: 'NO_APPLICABLE_GRANT',
      resourceType: 'compute-pool',
      requestId: 'r',
    });
    await expect(t.db.query("update iam.audit set hash = 'x' where tenant_id = $1", [org.id])).rejects.toThrow(
      'never changed',
    );
  });
});

describe('context', () => {
  test('address and features reach the policy', async () => {
    const statements = [
      {
        effect: 'allow',
        actions: ['compute:pools:read'],
        resources: ['*'],
        conditions: {
          IpAddress: { 'request.sourceIp': '203.0.113.0/24' },
          ArrayContains: { 'tenant.features': 'fast' },
          DateAfter: { 'request.time': '2020-01-01T00:00:00Z', 'principal.tokenIssueTime': '2020-01-01T00:00:00Z' },
          Bool: { 'principal.mfa': false, 'principal.delegated': false },
        },
      },
    ];
    const org = await seedTenant(t.db, 'Context', { version: 1, statements });
    const iam = embeddedIam(t.db, { clock: systemClock, catalog });
    const ask = async (sourceIp: string) => {
      const caller = await iam.authenticate(org.token, meta);
      return (await iam.authorize(caller, 'compute:pools:read', pool(org.id), { requestId: 'r', sourceIp })).allowed;
    };
    expect(await ask('203.0.113.9')).toBe(false);
    await t.db.query("insert into iam.flags (key) values ('fast')");
    await t.db.query("insert into iam.flag_targets values ('fast', $1, true)", [org.id]);
    expect(await ask('203.0.113.9')).toBe(true);
    expect(await ask('198.51.100.1')).toBe(false);
    // A locked target above silences the tenant's own, and the kill switch silences all.
    await t.db.query("insert into iam.flag_targets values ('fast', $1, false, true)", [ROOT]);
    expect(await t.db.query('select iam.features_on($1) as on', [org.id])).toEqual([{ on: [] }]);
    await t.db.query('update iam.flag_targets set enabled = true where tenant_id = $1', [ROOT]);
    expect(await t.db.query('select iam.features_on($1) as on', [org.id])).toEqual([{ on: ['fast'] }]);
    await t.db.query("update iam.flags set killed = true where key = 'fast'");
    expect(await t.db.query('select iam.features_on($1) as on', [org.id])).toEqual([{ on: [] }]);
  });
});

describe('bootstrap', () => {
  test('makes everything once, also when two start at once, and shows credentials once', async () => {
    const fresh = await testDatabase();
    try {
      const both = await Promise.all([bootstrapIam(fresh.db), bootstrapIam(fresh.db)]);
      const shown = both.filter((b) => b.operatorToken !== undefined);
      expect(shown).toHaveLength(1);
      expect(both[0]!.tenantId).toBe(both[1]!.tenantId);
      expect(await bootstrapIam(fresh.db)).toEqual({ rootTenantId: ROOT, tenantId: both[0]!.tenantId });
      const iam = embeddedIam(fresh.db, { clock: systemClock, catalog });
      const operator = await iam.authenticate(shown[0]!.operatorToken, meta);
      const owner = await iam.authenticate(shown[0]!.tenantApiKey, meta);
      expect((await iam.authorize(operator, 'compute:pools:update', pool(ROOT), meta)).reason).toBe('ROOT_OVERRIDE');
      expect((await iam.authorize(owner, 'compute:pools:update', pool(owner.tenantId), meta)).reason).toBe('allowed');
    } finally {
      await fresh.close();
    }
  });

  test('refuses an address that others can reach', async () => {
    await expect(bootstrapIam(t.db, { host: '0.0.0.0' })).rejects.toSatisfy(
      (e) => isProblem(e) && e.code === 'INVALID_REQUEST',
    );
    expect(['127.0.0.1', '::1', '[::1]', 'localhost', '127.9.9.9', '::ffff:127.0.0.1'].map(isLoopback)).toEqual(
      Array(6).fill(true),
    );
    expect(['0.0.0.0', '::', '10.0.0.1', 'example.com', '', 'localhost.example.com'].map(isLoopback)).toEqual(
      Array(6).fill(false),
    );
  });
});
