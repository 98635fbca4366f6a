/** reservations.create through the API: for how long, and once a key. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type CallOptions, type TestApi, testApi } from '#kit/api.ts';
import { bookErrors } from '#kit/books.ts';
import { type Controllers, controllers } from '#kit/controllers.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedStranger, seedTenant, type TestTenant } from '#kit/tenants.ts';

let t: TestDatabase;
let api: TestApi;
let reconcile: Controllers;
let owner: TestTenant;
let guest: TestTenant;
let fleet: Fleet;
beforeAll(async () => {
  t = await testDatabase();
  api = testApi(t.db);
  reconcile = controllers(t.db);
  await seedRoot(t.db);
  [owner, guest] = [await seedTenant(t.db, 'owner'), await seedTenant(t.db, 'guest')];
});
afterAll(() => t?.close());
beforeEach(async () => {
  fleet = await seedFleet(t.db, { tenantId: owner.id, nodes: 2, gpus: 8 });
});

const gpu = (count: number, ...selectors: object[]) => ({
  class: 'gpu' as const,
  count,
  ...(selectors.length === 0 ? {} : { selectors }),
});
interface Ask {
  readonly devices?: object[];
  readonly durationSeconds?: number;
  readonly poolId?: string;
}
const reserve = (ask: Ask = {}, who = owner, o: CallOptions = {}) =>
  api.call(
    who,
    'reservations.create',
    { body: { poolId: fleet.poolId, devices: [gpu(1)], durationSeconds: 3600, ...ask } as never },
    o,
  );
/** Released, and let go by the machine. */
async function giveBack(id: string): Promise<void> {
  await api.call(owner, 'reservations.release', { id });
  await reconcile.settle();
  await machinesObserve(t.db);
  await reconcile.settle();
}
const rows = async () =>
  (
    await t.db.query(
      `select (select count(*) from reservations) as reservations, (select count(*) from device_bookings) as bookings,
         (select count(*) from events) as events, (select count(*) from authz_resources) as projections`,
    )
  )[0];

describe('for how long', () => {
  test.each([
    ['zero', '0'],
    ['negative', '-3600'],
    ['below a microsecond', '0.0000001'],
    ['below a minute', '59'],
    ['not whole', '60.5'],
    ['four hundred years', '12622780800'],
    ['a second more than 366 days', '31622401'],
    ['past every number', '1e400'],
    ['as text', '"3600"'],
    ['as ISO 8601', '"PT1H"'],
    ['missing', undefined],
  ])('a duration that is %s is refused by its field before any row', async (_, value) => {
    const before = await rows();
    const text = `{"poolId": "${fleet.poolId}", "devices": [{"class": "gpu", "count": 1}]${value === undefined ? '' : `, "durationSeconds": ${value}`}}`;
    const response = await api.send(owner, 'reservations.create', {}, { text });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: 'INVALID_REQUEST', errors: [{ field: 'durationSeconds' }] });
    expect(await rows()).toEqual(before);
  });

  test('a minute and 366 days are the bounds, and windows are half-open', async () => {
    for (const durationSeconds of [60, 366 * 86_400]) {
      const made = await reserve({ durationSeconds });
      const [row] = await t.db.query(
        `select lower_inc(during) as "from", upper_inc(during) as "to",
           extract(epoch from upper(during) - lower(during))::bigint as seconds
         from device_bookings where allocation_id = $1`,
        [made.allocations[0]!.id],
      );
      expect(row).toEqual({ from: true, to: false, seconds: durationSeconds });
    }
  });

  test('the database itself refuses an empty window, overlaps of any shape, and nothing that only touches', async () => {
    const [device] = await t.db.query<{ no: number }>('select no from devices where node_id = $1 and slot = 0', [
      fleet.nodeIds[0]!,
    ]);
    const book = (from: string, to: string) =>
      t.db.query(
        'insert into device_bookings (device_no, allocation_id, during) values ($1, gen_random_uuid()::text, $2)',
        [device!.no, `[2027-01-01 ${from}+00,2027-01-01 ${to}+00)`],
      );
    await expect(book('10:00', '10:00')).rejects.toMatchObject({
      sqlstate: '23514',
      constraint: 'device_bookings_window_not_empty',
    });
    await book('10:00', '11:00');
    await book('11:00', '12:00');
    await book('09:00', '10:00');
    for (const [from, to] of [
      ['10:00', '10:30'],
      ['10:30', '11:00'],
      ['10:00', '11:00'],
      ['09:00', '12:00'],
      ['08:00', '09:00:00.000001'],
      ['11:59:59.999999', '13:00'],
    ]) {
      await expect(book(from!, to!)).rejects.toMatchObject({ constraint: 'device_bookings_no_overlap' });
    }
    await t.db.query('delete from device_bookings where device_no = $1', [device!.no]);
  });
});

describe('once a key', () => {
  test('the same request replays, however it is written; another one is refused and makes nothing', async () => {
    const key = crypto.randomUUID();
    const first = await reserve({}, owner, { key });
    const written = [
      `{"durationSeconds": 3600.0, "devices": [{"count": 1.0, "class": "gpu"}],  "poolId": "${fleet.poolId}"}`,
      `{"poolId":"${fleet.poolId}","binding":"hold","devices":[{"class":"gpu","count":1}],"durationSeconds":36e2}`,
    ];
    const before = await rows();
    for (const text of written) {
      const again = await api.send(owner, 'reservations.create', {}, { key, text });
      expect([again.status, await again.json()]).toEqual([201, first]);
    }
    for (const other of [{ devices: [gpu(2)] }, { durationSeconds: 3601 }, { name: 'x' }, { labels: { a: 'b' } }]) {
      await expect(reserve(other, owner, { key })).rejects.toMatchObject({ code: 'IDEMPOTENCY_MISMATCH', status: 422 });
    }
    expect(await rows()).toEqual(before);
    // What was answered is what was made then, also when it has moved on since.
    await api.call(owner, 'reservations.release', { id: first.id });
    expect(await reserve({}, owner, { key })).toEqual(first);
  });

  test('the key of another operation, caller or tenant is another request', async () => {
    const key = crypto.randomUUID();
    await offerPool(t.db, fleet, guest.id, 4);
    const first = await reserve({}, owner, { key });
    expect((await api.call(owner, 'sites.create', { body: { name: `s-${key.slice(0, 8)}` } }, { key })).id).toMatch(
      /^site_/,
    );
    const theirs = await reserve({}, guest, { key });
    expect(theirs).toMatchObject({ tenantId: guest.id });
    expect(theirs.id).not.toBe(first.id);
    const powerless = await seedStranger(t.db, owner.id);
    await expect(reserve({}, powerless, { key })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    expect((await api.call(guest, 'reservations.list', {})).items.map((r) => r.id)).toEqual([theirs.id]);
    await expect(api.call(guest, 'reservations.get', { id: first.id })).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  test('thirty at once with one key: one reservation, one answer', async () => {
    const key = crypto.randomUUID();
    const answers = await Promise.all(Array.from({ length: 30 }, () => reserve({}, owner, { key })));
    expect(new Set(answers.map((a) => JSON.stringify(a))).size).toBe(1);
    expect(await bookErrors(t.db)).toEqual([]);
  });

  test('what was refused for want of capacity or of quota may be repeated with the same key', async () => {
    const key = crypto.randomUUID();
    const hog = await reserve({ devices: [gpu(8)] });
    const other = await reserve({ devices: [gpu(8)] });
    await expect(reserve({}, owner, { key })).rejects.toMatchObject({ code: 'CAPACITY_UNAVAILABLE' });
    await giveBack(hog.id);
    const made = await reserve({}, owner, { key });
    expect(made).toMatchObject({ state: 'booked' });
    await giveBack(other.id);
    await offerPool(t.db, fleet, guest.id, 0);
    await expect(reserve({}, guest, { key })).rejects.toMatchObject({ code: 'QUOTA_EXCEEDED' });
    await t.db.query('update quotas set limit_count = 1 where tenant_id = $1', [guest.id]);
    expect(await reserve({}, guest, { key })).toMatchObject({ state: 'booked' });
  });

  test('without a key, or with one that is none, nothing is made', async () => {
    const before = await rows();
    for (const [headers, code] of [
      [{ 'idempotency-key': '' }, 'INVALID_REQUEST'],
      [{ 'idempotency-key': 'with space' }, 'INVALID_REQUEST'],
      [{ 'idempotency-key': 'x'.repeat(256) }, 'INVALID_REQUEST'],
    ] as const) {
      await expect(reserve({}, owner, { headers })).rejects.toMatchObject({ code });
    }
    expect(await rows()).toEqual(before);
  });
});
