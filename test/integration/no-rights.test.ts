/**
 * Every operation, asked by those who may not: nobody, somebody whom no policy allows anything, somebody of another
 * tenant, and owners of customers where only the platform may. Walks the table, so that no operation is forgotten.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ProblemBody } from '#core/kernel/errors.ts';
import { ID_PREFIXES, type IdKind, newId } from '#core/kernel/ids.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { OPERATIONS, type OperationName } from '#core/operations.ts';
import { type ApiName, type TestApi, testApi } from '#kit/api.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { offerPool, seedFleet } from '#kit/fleet.ts';
import { REQUESTS, type Things } from '#kit/requests.ts';
import { seedRoot, seedStranger, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let things: Things;
let owner: TestTenant;
let stranger: TestTenant;
let foreigner: TestTenant;

const rows = Object.entries(OPERATIONS) as unknown as [OperationName, Operation][];
/** `watch` answers through the edge; who may not call it is refused before, like everybody. */
const answered = rows.filter(([, o]) => o.stream === undefined) as [ApiName, Operation][];

beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  await seedRoot(t.db);
  owner = await seedTenant(t.db, 'owner');
  const other = await seedTenant(t.db, 'another');
  foreigner = await seedTenant(t.db, 'foreign');
  stranger = await seedStranger(t.db, owner.id);
  const fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 1 });
  await offerPool(t.db, fleet, owner.id, 8);
  const { poolId, siteId } = fleet;
  const create = (name: ApiName, body: object) => api.call(owner, name, { body } as never) as Promise<{ id: string }>;
  const webhook = await create('webhooks.create', { url: 'https://example.com/hooks' });
  const reservation = await create('reservations.create', {
    poolId,
    devices: [{ class: 'gpu', count: 1 }],
    durationSeconds: 600,
  });
  const { items } = (await api.call(owner, 'webhooks.deliveries', { id: webhook.id } as never)) as never as {
    items: { id: string }[];
  };
  const offers = (await api.call(owner, 'offers.list', {} as never)) as never as { items: { id: string }[] };
  things = {
    tenantId: owner.id,
    siteId,
    poolId,
    offerId: offers.items[0]!.id,
    joinTokenId: (await create('joinTokens.create', { poolId })).id,
    nodeId: fleet.nodeIds[0]!,
    reservationId: reservation.id,
    webhookId: webhook.id,
    deliveryId: items[0]!.id,
    otherTenantId: other.id,
  };
});
afterAll(() => t?.close());

const request = (name: OperationName) => REQUESTS[name]!(things);

/** Rows that a change would leave, of every table that changes carry. */
async function traces(): Promise<Record<string, number>> {
  const tables = ['sites', 'pools', 'pool_offers', 'join_tokens', 'webhooks', 'allocations', 'events', 'state_history'];
  const counts = tables.map((n) => `(select count(*)::int from ${n}) as ${n}`);
  const [found] = await t.db.query<Record<string, number>>(
    `select ${counts.join(', ')}, (select count(*)::int from audit_events where outcome = 'allow') as allowed`,
  );
  return found!;
}

async function refused(
  who: { token: string },
  name: ApiName,
  input: unknown,
): Promise<ProblemBody & { status: number }> {
  const response = await api.send(who, name, input);
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  return { ...((await response.json()) as ProblemBody), status: response.status };
}

test('there is a request for every operation', () => {
  expect(Object.keys(REQUESTS).sort()).toEqual(Object.keys(OPERATIONS).sort());
});

describe.each(answered)('%s', (name, operation) => {
  test('is refused without a credential, and with one that nobody knows', async () => {
    for (const token of ['', 'biam_ses_nobody', owner.token.slice(0, -1)]) {
      expect(await refused({ token }, name, request(name))).toMatchObject({ status: 401, code: 'UNAUTHENTICATED' });
    }
  });

  test('is refused to whom no policy allows it, and leaves nothing behind', async () => {
    const before = await traces();
    expect(await refused(stranger, name, request(name))).toMatchObject({ status: 403, code: 'PERMISSION_DENIED' });
    expect(await traces()).toEqual(before);
  });

  if (operation.iam.rootOnly === true) {
    test('is refused to a customer, whatever its policies', async () => {
      expect(await refused(owner, name, request(name))).toMatchObject({ status: 403, code: 'PERMISSION_DENIED' });
    });
  }

  const itemId = operation.params === undefined ? undefined : 'id';
  if (itemId !== undefined) {
    test('answers for what is another tenant’s as for what is not there', async () => {
      const input = request(name) as { id: string };
      const prefix = input.id.slice(0, input.id.lastIndexOf('_'));
      const [kind] = Object.entries(ID_PREFIXES).find(([, p]) => p === prefix)! as [IdKind, string];
      const nowhere = newId(kind);
      const [foreign, unknown] = [
        await refused(foreigner, name, input),
        await refused(foreigner, name, { ...input, id: nowhere }),
      ];
      const plain = ({ requestId: _, ...p }: ProblemBody & { status: number }, id: string) =>
        JSON.stringify(p).replaceAll(id, 'ID');
      expect(foreign.status).toBe(404);
      expect(plain(foreign, input.id)).toBe(plain(unknown, nowhere));
    });
  }
});

test('a pool that one may not see is not there, whatever is asked of it', async () => {
  for (const name of [
    'capacity.get',
    'capacity.series',
    'capacity.explain',
    'quotas.get',
    'quotas.set',
    'joinTokens.create',
    'reservations.create',
    'offers.create',
  ] as const) {
    expect([name, await refused(foreigner, name, request(name))]).toMatchObject([
      name,
      { status: 404, code: 'NOT_FOUND' },
    ]);
  }
});

test('each refusal by a policy is on record', async () => {
  const [found] = await t.db.query<{ n: number }>(
    `select count(distinct record ->> 'action')::int as n from iam.audit
     where record ->> 'outcome' = 'deny' and record ->> 'actorId' = $1`,
    [stranger.identityId],
  );
  expect(found!.n).toBe(new Set(answered.map(([, o]) => o.iam.action)).size);
});
