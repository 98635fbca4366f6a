/** What a clock wrote while it ran ahead, and what becomes of it when the clock is back; what it did not write stays. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '#core/iam/root.ts';
import type { Instant } from '#core/kernel/time.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant } from '#kit/tenants.ts';

const AHEAD = 30 * 86_400;
let t: TestDatabase;
let clock: TestClock;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  clock = await takeClock(t.db);
  await seedRoot(t.db);
});
afterAll(() => t?.close());

const look = () => t.db.query('select clock_look($1, 300, 300)', [ROOT]);

/** One row of each kind, as a deployment at work writes them, under ids that begin with `when`. */
async function write(when: string): Promise<void> {
  const alice = await seedTenant(t.db, `alice ${when}`);
  const p = [when, alice.id];
  for (const statement of [
    `insert into work_queue (kind, key, shard, not_before) values ('x', $1 || $2, 0, compute_now() + interval '30 seconds')`,
    `insert into leases (name, holder, epoch, expires_at) values ($1, $2, 1, compute_now() + interval '30 seconds')`,
    `insert into join_tokens (id, tenant_id, site_id, pool_id, secret_hash, max_uses, expires_at, created_by)
     values ($1, $2, '', (select id from pools limit 1), '', 1, compute_now() + interval '1 hour', '')`,
    `insert into webhook_deliveries (id, webhook_id, tenant_id, event_id, next_attempt_at, claimed_until)
     values ($1, 'whk', $2, $1, compute_now() + interval '2 hours', compute_now() + interval '1 minute')`,
    `insert into iam.identities (id, tenant_id, kind, name, sponsor_id)
     select $1 || '-agent', $2, 'agent', $1 || 'agent', id from iam.identities where tenant_id = $2`,
    `insert into iam.credentials (id, token_hash, kind, tenant_id, identity_id, mfa_at, expires_at)
     select $1, $1, 'user', $2, id, compute_now(), compute_now() + interval '8 hours' from iam.identities where tenant_id = $2 and kind = 'user'`,
    `insert into iam.delegations (id, tenant_id, agent_id, person_id, reason, policy, expires_at)
     select $1, $2, $1 || '-agent', id, '', '{}', compute_now() + interval '1 day' from iam.identities where tenant_id = $2 and kind = 'user'`,
    `insert into iam.confirmations (id, tenant_id, delegation_id, action, resource, reason, valid_seconds, expires_at)
     values ($1, $2, $1, 'a', 'r', '', 300, compute_now() + interval '10 minutes')`,
  ]) {
    // Each names the tenant in its own way; a statement without it still takes both parameters.
    await t.db.query(statement, statement.includes('$2') ? p : [when]);
  }
}

/** Seconds until the deadlines of the rows of `when`, and since they were made. */
async function deadlines(when: string): Promise<Record<string, number>> {
  const [row] = await t.db.query<Record<string, number>>(
    `select
       (select extract(epoch from not_before - compute_now()) from work_queue where starts_with(key, $1))::int as wake,
       (select extract(epoch from expires_at - compute_now()) from leases where name = $1)::int as lease,
       (select extract(epoch from expires_at - compute_now()) from join_tokens where id = $1)::int as token,
       (select extract(epoch from next_attempt_at - compute_now()) from webhook_deliveries where id = $1)::int as attempt,
       (select count(*) from webhook_deliveries where id = $1 and claimed_until is not null)::int as claims,
       (select extract(epoch from expires_at - compute_now()) from iam.credentials where id = $1)::int as session,
       (select extract(epoch from compute_now() - mfa_at) from iam.credentials where id = $1)::int as factor,
       (select extract(epoch from expires_at - compute_now()) from iam.delegations where id = $1)::int as delegation,
       (select extract(epoch from expires_at - compute_now()) from iam.confirmations where id = $1)::int as confirmation`,
    [when],
  );
  return row!;
}

test('rows of the future get the deadlines that they would have had, and rows of before keep theirs', async () => {
  fleet = await seedFleet(t.db, { tenantId: 'tnt_x', nodes: 2, gpus: 1 });
  // The kit's gateway holds its lease for ten years, as none does.
  await t.db.query(`delete from leases`);
  await t.db.query(
    `insert into webhooks (id, tenant_id, url, event_types, enabled, secrets) values ('whk', 'tnt_x', 'https://x.test', '{}', false, '[]')`,
  );
  await look();
  await write('before');
  const before = await deadlines('before');
  await clock.jump(AHEAD);
  await look();
  await write('ahead');
  const node = fleet.nodeIds[0]!;
  await t.db.query('update nodes set fenced_at = compute_now() where id = $1', [node]);
  await clock.jump(-AHEAD);
  await look();
  expect(await deadlines('before')).toEqual({
    ...before,
    // Woken and tried a little early is looked at in vain; the claim of a consumer that is at work is given up with it.
    attempt: expect.any(Number),
    claims: 0,
  });
  const ahead = await deadlines('ahead');
  expect(ahead).toEqual({
    wake: expect.any(Number),
    lease: 60,
    token: 3600,
    attempt: expect.any(Number),
    claims: 0,
    session: 8 * 3600,
    factor: 0,
    delegation: 86_400,
    confirmation: 600,
  });
  for (const soon of [ahead['wake']!, ahead['attempt']!]) expect(soon >= 0 && soon < 60).toBe(true);
  // The fence is one of now: what comes later on that machine is not fenced by it.
  const [fence] = await t.db.query<{ at: Instant }>('select fenced_at as at from nodes where id = $1', [node]);
  expect(fence!.at).toBe(await clock.now());
});

test('what is written after the return by who began before it is brought back a minute later, and once', async () => {
  const late = async (key: string) =>
    t.db.query(
      `insert into work_queue (kind, key, shard, not_before) values ('x', $1, 0, compute_now() + interval '30 days')`,
      [key],
    );
  const waits = async (key: string) =>
    (
      await t.db.query<{ s: number }>(
        `select extract(epoch from not_before - compute_now())::int as s from work_queue where key = $1`,
        [key],
      )
    )[0]!.s;
  await late('in-flight');
  await clock.jump(59);
  await look();
  expect(await waits('in-flight')).toBe(AHEAD - 59);
  await clock.jump(1);
  await look();
  expect(await waits('in-flight')).toBeLessThan(60);
  // From here on a wait of a month is somebody's wish.
  await late('month');
  for (let i = 0; i < 5; i++) {
    await clock.jump(60);
    await look();
  }
  expect(await waits('month')).toBe(AHEAD - 300);
});

test('a renewal of a lease made ahead lasts from the return, and its reservation keeps its window', async () => {
  const [node] = fleet.nodeIds.slice(1);
  await look();
  await t.db.query(
    `insert into reservations (id, tenant_id, identity_id, idempotency_key, fingerprint, pool_id, devices, duration_seconds,
       lease_seconds, starts_at, ends_at, lease_expires_at, context)
     values ('rsv_1', 'tnt_x', '', '', '', $1, '[]', 3600, 60, compute_now(), compute_now() + interval '40 days',
       compute_now() + interval '60 seconds', '{}')`,
    [fleet.poolId],
  );
  await t.db.query(`select transition_reservation('rsv_1', 'admit', 'kit')`);
  const [window] = await t.db.query('select starts_at, ends_at, created_at from reservations');
  await t.db.query(
    `insert into allocations (id, reservation_id, tenant_id, pool_id, node_id) values ('alc_1', 'rsv_1', 'tnt_x', $1, $2)`,
    [fleet.poolId, node!],
  );
  await clock.jump(AHEAD);
  await look();
  await t.db.query(`update reservations set lease_expires_at = compute_now() + make_interval(secs => lease_seconds)`);
  await t.db.query(`select transition_reservation('rsv_1', 'activate', 'kit')`);
  await t.db.query(`update reservations set activated_at = compute_now()`);
  await t.db.query(`update allocations set active_at = compute_now()`);
  await clock.jump(-AHEAD);
  await look();
  const [after] = await t.db.query<{ lease: number }>(
    `select starts_at, ends_at, created_at, extract(epoch from lease_expires_at - compute_now())::int as lease,
       activated_at = compute_now() as "activeNow",
       (select active_at = compute_now() from allocations where id = 'alc_1') as "meteredFromNow" from reservations`,
  );
  expect(after).toEqual({ ...window, lease: 60, activeNow: true, meteredFromNow: true });
});
