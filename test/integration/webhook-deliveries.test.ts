/** Deliveries against real Postgres and a real endpoint. */
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { ATTEMPTS_MAX, DEAD_IN_A_ROW_MAX } from '#core/webhooks/schedule.ts';
import { newSecret } from '#core/webhooks/signature.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type WebhookReceiver, webhookReceiver } from '#kit/webhook-receiver.ts';
import { nodeTransport } from '#plugins/webhook-transport/node.ts';
import { RETENTION, tidy } from '#services/housekeeping/index.ts';
import {
  attemptDelivery,
  claimDelivery,
  type DeliveryContext,
  recordAttempt,
  takeDue,
} from '#services/webhooks/index.ts';

let t: TestDatabase;
let endpoint: WebhookReceiver;
let ctx: DeliveryContext;
beforeAll(async () => {
  t = await testDatabase();
  endpoint = await webhookReceiver();
  ctx = {
    db: t.db,
    transport: nodeTransport({ policy: { allowLoopback: true }, deadlineSeconds: 1 }),
    random: () => 0.5,
  };
});
afterAll(async () => {
  await endpoint.close();
  await t.close();
});
beforeEach(async () => {
  await t.db.query('delete from webhooks');
  await t.db.query('delete from events');
  endpoint.received.length = 0;
});

const tenant = newId('tenant');
async function webhook(path: string, secrets: object[] = [{ secret: newSecret() }], types = ['*']) {
  const id = newId('webhook');
  await t.db.query('insert into webhooks (id, tenant_id, url, event_types, secrets) values ($1, $2, $3, $4, $5)', [
    id,
    tenant,
    path.startsWith('http') ? path : endpoint.url + path,
    types,
    JSON.stringify(secrets),
  ]);
  return id;
}
const emit = (type: string, data: object = {}) =>
  t.db.query('select emit($1, $2, $3, $4, $5)', [
    type,
    tenant,
    'reservation',
    newId('reservation'),
    JSON.stringify(data),
  ]);
const rows = () =>
  t.db.query<{
    id: string;
    event_id: string;
    webhook_id: string;
    state: string;
    attempt: number;
    response_status: number | null;
    response_excerpt: string | null;
    wait: number;
    claimed_until: string | null;
  }>(
    `select id, event_id, webhook_id, state, attempt, response_status, response_excerpt, claimed_until,
       round(extract(epoch from next_attempt_at - compute_now()))::int as wait from webhook_deliveries order by id`,
  );
const makeDue = () =>
  t.db.query(
    `update webhook_deliveries set next_attempt_at = compute_now(), claimed_until = null where state = 'pending'`,
  );
/** One sweep, and an attempt of everything it found. */
async function sweep() {
  return Promise.all((await takeDue(t.db, 100)).map((d) => attemptDelivery(ctx, d)));
}

test('an event reaches the webhooks that asked for its type, signed, with every byte intact', async () => {
  const secret = newSecret();
  await webhook('/family', [{ secret }], ['reservation.*']);
  await webhook('/other', undefined, ['node.ready']);
  await emit('reservation.booked', { name: 'Zürich ✓ 東京\n' });
  expect(await sweep()).toEqual(['delivered']);
  const [got] = endpoint.received;
  expect(endpoint.received).toHaveLength(1);
  const verified = new Webhook(secret).verify(got!.body, { ...got!.headers }) as Record<string, unknown>;
  expect(verified).toMatchObject({ type: 'reservation.booked', tenantId: tenant, data: { name: 'Zürich ✓ 東京\n' } });
  expect(got!.headers['webhook-id']).toBe(verified['id']);
  expect(got!.headers['content-type']).toBe('application/json');
  expect(await rows()).toMatchObject([{ state: 'delivered', attempt: 1, response_status: 200 }]);
});

test('an event that is rolled back is not delivered', async () => {
  await webhook('/ok');
  await t.db
    .transaction(async (tx) => {
      await tx.query(`select emit('a.b', $1, 'x', 'x', '{}')`, [tenant]);
      throw new Error('no');
    })
    .catch(() => {});
  expect(await rows()).toEqual([]);
});

test('500 then 200: waits, repeats under the same webhook-id with a fresh timestamp and the same body', async () => {
  const secret = newSecret();
  await webhook('/flaky', [{ secret }]);
  endpoint.answer('/flaky', 500, 200);
  await emit('reservation.booked', { n: 1 });
  expect(await sweep()).toEqual(['retry']);
  expect(await rows()).toMatchObject([
    { state: 'pending', attempt: 1, response_status: 500, wait: 5, claimed_until: null },
  ]);
  expect(await sweep()).toEqual([]);
  await expect
    .poll(
      async () =>
        (await t.db.query<{ s: number }>('select floor(extract(epoch from compute_now()))::bigint as s'))[0]!.s,
      {
        timeout: 5_000,
      },
    )
    .toBeGreaterThan(Number(endpoint.received[0]!.headers['webhook-timestamp']));
  await makeDue();
  expect(await sweep()).toEqual(['delivered']);
  const [first, second] = endpoint.received;
  expect(second!.headers['webhook-id']).toBe(first!.headers['webhook-id']);
  expect(second!.body).toBe(first!.body);
  expect(Number(second!.headers['webhook-timestamp'])).toBeGreaterThan(Number(first!.headers['webhook-timestamp']));
  for (const r of [first!, second!]) expect(() => new Webhook(secret).verify(r.body, { ...r.headers })).not.toThrow();
});

test('while a secret rotates both sign; after its end the old one does not', async () => {
  const [fresh, old] = [newSecret(), newSecret()];
  const id = await webhook('/rotating', [
    { secret: fresh },
    { secret: old, expiresAt: new Date(Date.now() + 60_000).toISOString() },
  ]);
  await emit('a.b');
  await sweep();
  const during = endpoint.received[0]!;
  expect(during.headers['webhook-signature']!.split(' ')).toHaveLength(2);
  for (const s of [fresh, old]) expect(() => new Webhook(s).verify(during.body, { ...during.headers })).not.toThrow();
  await t.db.query('update webhooks set secrets = $2 where id = $1', [
    id,
    JSON.stringify([{ secret: fresh }, { secret: old, expiresAt: '2020-01-01T00:00:00Z' }]),
  ]);
  await emit('a.b');
  await sweep();
  const after = endpoint.received[1]!;
  expect(() => new Webhook(fresh).verify(after.body, { ...after.headers })).not.toThrow();
  expect(() => new Webhook(old).verify(after.body, { ...after.headers })).toThrow();
});

test.each([301, 302, 303, 307, 308])('%i is a failed attempt and is not followed', async (status) => {
  await webhook(`/redirect-${status}`);
  for (const location of ['http://169.254.169.254/latest/meta-data/', '//[::ffff:10.0.0.5]/', '/ok']) {
    endpoint.answer(`/redirect-${status}`, (_, res) => {
      res.writeHead(status, { location });
      res.end('moved');
    });
    await makeDue();
    await emit('a.b');
    const before = endpoint.received.length;
    expect((await sweep()).every((e) => e === 'retry')).toBe(true);
    expect(endpoint.received.slice(before).every((r) => r.path === `/redirect-${status}`)).toBe(true);
  }
  expect((await rows())[0]).toMatchObject({ state: 'pending', response_status: status, response_excerpt: 'moved' });
});

test('a silent endpoint costs one deadline, and is tried again', async () => {
  await webhook('/slow');
  endpoint.answer('/slow', () => {});
  await emit('a.b');
  expect(await sweep()).toEqual(['retry']);
  expect(await rows()).toMatchObject([{ response_status: null, response_excerpt: 'no answer within the deadline' }]);
});

test('an address that became private is refused at the attempt, not called', async () => {
  await webhook('http://10.0.0.5/');
  await emit('a.b');
  expect(await sweep()).toEqual(['retry']);
  expect((await rows())[0]!.response_excerpt).toContain('url must');
});

test('the schedule ends: dead after the last attempt', async () => {
  await webhook('/never');
  endpoint.answer('/never', 500);
  await emit('a.b');
  const ends: string[] = [];
  for (let i = 0; i < ATTEMPTS_MAX; i++) {
    await makeDue();
    ends.push(...(await sweep()));
  }
  expect(ends).toEqual([...Array<string>(ATTEMPTS_MAX - 1).fill('retry'), 'dead']);
  expect(await rows()).toMatchObject([{ state: 'dead', attempt: ATTEMPTS_MAX }]);
  expect(await sweep()).toEqual([]);
});

async function die(n: number) {
  for (let i = 0; i < n; i++) await emit('a.b');
  await t.db.query(
    `update webhook_deliveries set attempt = $1, next_attempt_at = compute_now() where state = 'pending'`,
    [ATTEMPTS_MAX - 1],
  );
  for (const d of await takeDue(t.db, 100)) await attemptDelivery(ctx, d);
}

test('so many dead in a row disable the webhook, with an event; one delivered between starts the count anew', async () => {
  const id = await webhook('/hopeless');
  endpoint.answer('/hopeless', 500);
  await die(DEAD_IN_A_ROW_MAX - 1);
  endpoint.answer('/hopeless', 200);
  await emit('a.b');
  await sweep();
  endpoint.answer('/hopeless', 500);
  await die(DEAD_IN_A_ROW_MAX - 1);
  const enabled = async () =>
    (await t.db.query<{ enabled: boolean }>('select enabled from webhooks where id = $1', [id]))[0]!;
  expect(await enabled()).toEqual({ enabled: true });
  await die(1);
  expect(await enabled()).toEqual({ enabled: false });
  const events = await t.db.query(`select subject_id, data from events where type = 'webhook.disabled'`);
  expect(events).toEqual([
    { subject_id: id, data: { id, reason: `${DEAD_IN_A_ROW_MAX} deliveries in a row failed for good` } },
  ]);
  // Nothing new is queued for it, not even the news of its own end.
  expect((await rows()).filter((r) => r.state === 'pending')).toEqual([]);
  expect(await t.db.query(`select 1 from audit_events where resource_id = $1`, [id])).toHaveLength(1);
});

test('410 ends the delivery and the webhook at once', async () => {
  const id = await webhook('/gone');
  endpoint.answer('/gone', 410);
  await emit('a.b');
  expect(await sweep()).toEqual(['dead']);
  expect(await t.db.query('select enabled, disabled_reason from webhooks where id = $1', [id])).toEqual([
    { enabled: false, disabled_reason: 'the endpoint answered 410 Gone' },
  ]);
});

test('what waits for a disabled webhook dies without a call', async () => {
  await webhook('/off');
  await emit('a.b');
  await t.db.query('update webhooks set enabled = false');
  expect(await sweep()).toEqual(['dead']);
  expect(endpoint.received).toEqual([]);
});

test('one row, one consumer: a message twice, a stale message and two sweeps send once', async () => {
  await webhook('/once');
  await emit('a.b');
  const [a, b] = await Promise.all([takeDue(t.db, 10), takeDue(t.db, 10)]);
  const due = [...a, ...b];
  expect(due).toHaveLength(1);
  endpoint.answer('/once', 500);
  const ends = await Promise.all([1, 2, 3].map(() => attemptDelivery(ctx, due[0]!)));
  expect(ends.sort()).toEqual(['retry', 'skipped', 'skipped']);
  expect(await attemptDelivery(ctx, due[0]!)).toBe('skipped');
  expect(endpoint.received).toHaveLength(1);
});

test('a message that is lost only delays: the row falls due again', async () => {
  await webhook('/lost');
  await emit('a.b');
  expect(await takeDue(t.db, 10)).toHaveLength(1);
  expect(await takeDue(t.db, 10)).toEqual([]);
  expect((await rows())[0]!.wait).toBe(60);
  await t.db.query(`update webhook_deliveries set next_attempt_at = next_attempt_at - interval '61 seconds'`);
  expect(await sweep()).toEqual(['delivered']);
});

test('a consumer that lost its claim may still report success, not failure', async () => {
  await webhook('/late');
  await emit('a.b');
  const [due] = await takeDue(t.db, 10);
  const mine = await claimDelivery(t.db, due!);
  expect(mine).toBeDefined();
  await makeDue();
  const [again] = await takeDue(t.db, 10);
  const theirs = await claimDelivery(t.db, again!);
  expect(theirs).toBeDefined();
  expect(await recordAttempt(ctx, mine!, { kind: 'failed', reason: 'late' })).toBe('skipped');
  expect(await recordAttempt(ctx, mine!, { kind: 'answered', status: 204, excerpt: '' })).toBe('delivered');
  expect(await recordAttempt(ctx, theirs!, { kind: 'answered', status: 200, excerpt: '' })).toBe('skipped');
});

test('a webhook deleted during its attempt takes its deliveries along', async () => {
  const id = await webhook('/deleted');
  await emit('a.b');
  const [due] = await takeDue(t.db, 10);
  const claimed = await claimDelivery(t.db, due!);
  await t.db.query('delete from webhooks where id = $1', [id]);
  expect(await recordAttempt(ctx, claimed!, { kind: 'answered', status: 200, excerpt: '' })).toBe('skipped');
  expect(await rows()).toEqual([]);
});

test('settled deliveries go after their time, pending ones stay', async () => {
  await webhook('/kept');
  for (let i = 0; i < 3; i++) await emit('a.b');
  const [first] = await takeDue(t.db, 1);
  await attemptDelivery(ctx, first!);
  const age = (days: number) =>
    t.db.query(`update webhook_deliveries set state_changed_at = compute_now() - make_interval(days => $1)`, [days]);
  await age(RETENTION.deliveriesDays - 1);
  expect((await tidy(t.db)).deliveries).toBe(0);
  await age(RETENTION.deliveriesDays + 1);
  expect((await tidy(t.db)).deliveries).toBe(1);
  expect((await rows()).map((r) => r.state)).toEqual(['pending', 'pending']);
});
