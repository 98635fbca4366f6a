/** The owner's verbs, as the API calls them, against real Postgres, the embedded IAM and a real endpoint. */
import { Webhook as Verifier } from 'standardwebhooks';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { iamCatalog } from '#core/iam/catalog.ts';
import type { IamPort } from '#core/iam/port.ts';
import type { Input } from '#core/kernel/operations.ts';
import { systemClock } from '#core/kernel/time.ts';
import { webhookOperations } from '#core/webhooks/contract.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { seedRoot, seedStranger, seedTenant, type TestTenant } from '#kit/tenants.ts';
import { type WebhookReceiver, webhookReceiver } from '#kit/webhook-receiver.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import { nodeTransport } from '#plugins/webhook-transport/node.ts';
import { type Handler, type RequestContext, requestContext } from '#services/context.ts';
import { attemptDelivery, handlers, takeDue } from '#services/webhooks/index.ts';

const actions = Object.values(webhookOperations).map((o) => o.iam.action);
let t: TestDatabase;
let iam: IamPort;
let endpoint: WebhookReceiver;
let alice: TestTenant;
let bob: TestTenant;
let pokes = 0;
beforeAll(async () => {
  t = await testDatabase();
  iam = embeddedIam(t.db, { clock: systemClock, catalog: iamCatalog(actions) });
  endpoint = await webhookReceiver();
  await seedRoot(t.db);
  [alice, bob] = [await seedTenant(t.db, 'alice'), await seedTenant(t.db, 'bob')];
});
afterAll(async () => {
  await endpoint?.close();
  await t?.close();
});
beforeEach(async () => {
  await t.db.query('delete from webhooks');
  await t.db.query('delete from events');
  endpoint.received.length = 0;
});

let keys = 0;
async function as(who: TestTenant, over: Partial<RequestContext> = {}): Promise<RequestContext> {
  const n = ++keys;
  const requestId = `req-${n}`;
  const caller = await iam.authenticate(who.token, { requestId });
  const services = {
    db: t.db,
    iam,
    poke: () => void pokes++,
    cursorKey: new Uint8Array(32),
    webhookAddresses: { allowLoopback: true },
  };
  return { ...requestContext(services, { caller, requestId, idempotencyKey: `key-${n}` }), ...over };
}
type Ops = typeof webhookOperations;
const call = <N extends keyof Ops>(ctx: RequestContext, name: N, input: Input<Ops[N]>) =>
  (handlers[name] as Handler<Ops[N]>)(ctx, input);
const create = async (who: TestTenant, path = '/hook', eventTypes = ['*']) =>
  call(await as(who), 'webhooks.create', { body: { url: endpoint.url + path, eventTypes, enabled: true } });
const page = { limit: 50, order: 'asc' } as const;
async function sweep() {
  const transport = nodeTransport({ policy: { allowLoopback: true }, deadlineSeconds: 2 });
  const due = await takeDue(t.db, 100);
  return Promise.all(due.map((d) => attemptDelivery({ db: t.db, transport, random: () => 0.5 }, d)));
}
const code = (c: string) => expect.objectContaining({ code: c });

test('the secret is shown once, and again for the same key; the row never shows it', async () => {
  const ctx = await as(alice);
  const input = { body: { url: `${endpoint.url}/hook`, eventTypes: ['reservation.*'], enabled: true } };
  const made = await call(ctx, 'webhooks.create', input);
  expect(made).toMatchObject({ tenantId: alice.id, eventTypes: ['reservation.*'], enabled: true, version: 1 });
  expect(made.secret).toMatch(/^whsec_/);
  expect(await call(ctx, 'webhooks.create', input)).toEqual(made);
  await expect(call(ctx, 'webhooks.create', { body: { ...input.body, eventTypes: ['*'] } })).rejects.toEqual(
    code('IDEMPOTENCY_MISMATCH'),
  );
  const shown = await call(await as(alice), 'webhooks.get', { id: made.id });
  expect(shown).not.toHaveProperty('secret');
  const { items } = await call(await as(alice), 'webhooks.list', page);
  expect(items).toEqual([shown]);
  expect(await t.db.query('select 1 from audit_events where resource_id = $1', [made.id])).toHaveLength(1);
  expect(await t.db.query(`select attributes from authz_resources where id = $1`, [made.id])).toEqual([
    { attributes: { url: made.url } },
  ]);
});

test('an address inside is refused at create and at update, naming the field', async () => {
  const strict = { webhookAddresses: { allowLoopback: false } };
  const made = await create(alice);
  for (const url of [
    'http://example.com/',
    'https://169.254.169.254/',
    'https://[::ffff:10.0.0.5]/',
    'https://0x7f.1/',
  ]) {
    const refused = expect.objectContaining({
      code: 'INVALID_REQUEST',
      details: { errors: [expect.objectContaining({ field: 'url' })] },
    });
    await expect(
      call(await as(alice, strict), 'webhooks.create', { body: { url, eventTypes: ['*'], enabled: true } }),
    ).rejects.toEqual(refused);
    await expect(call(await as(alice, strict), 'webhooks.update', { id: made.id, body: { url } })).rejects.toEqual(
      refused,
    );
  }
});

test("another tenant's webhook and delivery are not found, by any verb; a stranger of the tenant is denied", async () => {
  const made = await create(alice);
  const delivery = await call(await as(alice), 'webhooks.test', { id: made.id });
  const verbs = async (who: TestTenant) => {
    const ctx = await as(who);
    return [
      call(ctx, 'webhooks.get', { id: made.id }),
      call(ctx, 'webhooks.update', { id: made.id, body: {} }),
      call(ctx, 'webhooks.delete', { id: made.id }),
      call(ctx, 'webhooks.rotateSecret', { id: made.id }),
      call(ctx, 'webhooks.test', { id: made.id }),
      call(ctx, 'webhooks.deliveries', { id: made.id, ...page }),
      call(ctx, 'webhooks.redeliver', { id: delivery.id }),
    ];
  };
  for (const e of await Promise.allSettled(await verbs(bob)))
    expect(e).toMatchObject({ reason: { code: 'NOT_FOUND' } });
  const stranger = await seedStranger(t.db, alice.id);
  for (const e of await Promise.allSettled(await verbs(stranger))) {
    expect(e).toMatchObject({ reason: { code: 'PERMISSION_DENIED' } });
  }
  expect((await call(await as(bob), 'webhooks.list', page)).items).toEqual([]);
});

test('an edit on an old version is refused; enabling clears the reason', async () => {
  const made = await create(alice);
  const off = await call(await as(alice, { ifMatch: '1' }), 'webhooks.update', {
    id: made.id,
    body: { enabled: false },
  });
  expect(off).toMatchObject({ enabled: false, version: 2, disabledReason: 'disabled by its owner' });
  await expect(
    call(await as(alice, { ifMatch: '1' }), 'webhooks.update', { id: made.id, body: { enabled: true } }),
  ).rejects.toEqual(code('VERSION_CONFLICT'));
  await expect(call(await as(alice), 'webhooks.test', { id: made.id })).rejects.toEqual(code('CONFLICT'));
  const on = await call(await as(alice), 'webhooks.update', { id: made.id, body: { enabled: true } });
  expect(on).toMatchObject({ enabled: true, version: 3 });
  expect(on).not.toHaveProperty('disabledReason');
});

test('test sends to this webhook alone, redirects are not followed, and the answer can be read and sent again', async () => {
  const made = await create(alice, '/tested', ['reservation.booked']);
  await create(alice, '/other');
  endpoint.answer(
    '/tested',
    (_, res) => {
      res.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data/' });
      res.end('moved\u0007 away');
    },
    200,
  );
  const before = pokes;
  const delivery = await call(await as(alice), 'webhooks.test', { id: made.id });
  expect(delivery).toMatchObject({ state: 'pending', attempt: 0, eventType: 'webhook.test', webhookId: made.id });
  expect(pokes).toBeGreaterThan(before);
  expect(await sweep()).toEqual(['retry']);
  const [failed] = (await call(await as(alice), 'webhooks.deliveries', { id: made.id, ...page })).items;
  expect(failed).toMatchObject({ attempt: 1, responseStatus: 302, responseExcerpt: 'moved\ufffd away' });
  const again = await call(await as(alice), 'webhooks.redeliver', { id: delivery.id });
  expect(again).toMatchObject({ id: delivery.id, state: 'pending', attempt: 0 });
  expect(await sweep()).toEqual(['delivered']);
  const [a, b] = endpoint.received;
  expect(endpoint.received.map((r) => r.path)).toEqual(['/tested', '/tested']);
  expect(b!.headers['webhook-id']).toBe(a!.headers['webhook-id']);
  expect(() => new Verifier(made.secret!).verify(b!.body, { ...b!.headers })).not.toThrow();
  const once = await call(await as(alice), 'webhooks.redeliver', { id: delivery.id });
  expect(once.state).toBe('pending');
});

test('rotation: both sign for a day, a second rotation drops the oldest', async () => {
  const made = await create(alice);
  const ctx = await as(alice);
  const second = await call(ctx, 'webhooks.rotateSecret', { id: made.id });
  expect(second.secret).not.toBe(made.secret);
  expect(await call(ctx, 'webhooks.rotateSecret', { id: made.id })).toEqual(second);
  const third = await call(await as(alice), 'webhooks.rotateSecret', { id: made.id });
  await t.db.query(`select emit('reservation.booked', $1, 'reservation', 'rsv_x', '{}')`, [alice.id]);
  await sweep();
  const got = endpoint.received[0]!;
  const verifies = (secret: string) => {
    try {
      new Verifier(secret).verify(got.body, { ...got.headers });
      return true;
    } catch {
      return false;
    }
  };
  expect([third, second, made].map((w) => verifies(w.secret!))).toEqual([true, true, false]);
  const [row] = await t.db.query<{ hours: number }>(
    `select round(extract(epoch from (secrets -> 1 ->> 'expiresAt')::timestamptz - compute_now()) / 3600)::int as hours
     from webhooks where id = $1`,
    [made.id],
  );
  expect(row).toEqual({ hours: 24 });
});

test('deliveries page without gap or repetition while more arrive, in both orders', async () => {
  const made = await create(alice);
  const more = () => t.db.query(`select emit('a.b', $1, 'x', 'x', '{}')`, [alice.id]);
  for (let i = 0; i < 7; i++) await more();
  const all = (await call(await as(alice), 'webhooks.deliveries', { id: made.id, ...page })).items.map((d) => d.id);
  for (const order of ['asc', 'desc'] as const) {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const input = { id: made.id, limit: 3, order, ...(cursor === undefined ? {} : { cursor }) };
      const got = await call(await as(alice), 'webhooks.deliveries', input);
      seen.push(...got.items.map((d) => d.id));
      cursor = got.nextCursor;
      await more();
    } while (cursor !== undefined && seen.length < 50);
    expect(new Set(seen).size).toBe(seen.length);
    for (const id of all) expect(seen).toContain(id);
  }
  await expect(call(await as(alice), 'webhooks.list', { ...page, cursor: 'made-up' })).rejects.toEqual(
    code('INVALID_CURSOR'),
  );
});

test('the number of webhooks is bounded, also for many made at once', async () => {
  const results = await Promise.allSettled(Array.from({ length: 56 }, (_, i) => create(alice, `/${i}`)));
  expect(results.filter((r) => r.status === 'fulfilled')).toHaveLength(50);
  for (const r of results) if (r.status === 'rejected') expect(r.reason).toEqual(code('CONFLICT'));
});

test('deleting takes the deliveries along, and doing it again with the same key answers the same', async () => {
  const made = await create(alice);
  await t.db.query(`select emit('a.b', $1, 'x', 'x', '{}')`, [alice.id]);
  await call(await as(alice), 'webhooks.delete', { id: made.id });
  expect(await t.db.query('select 1 from webhook_deliveries')).toEqual([]);
  expect(await t.db.query('select 1 from authz_resources where id = $1', [made.id])).toEqual([]);
  await expect(call(await as(alice), 'webhooks.get', { id: made.id })).rejects.toEqual(code('NOT_FOUND'));
});
