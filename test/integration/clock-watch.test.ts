/** The watch over the clock, look by look: what is believed, for how long not, and what an operator may say. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ROOT } from '#core/iam/root.ts';
import type { Log } from '#core/kernel/log.ts';
import { addSeconds, type Instant, toMillis } from '#core/kernel/time.ts';
import { type TestApi, testApi } from '#kit/api.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { seedRoot, seedTenant } from '#kit/tenants.ts';
import { watchClock } from '#services/clock/index.ts';

const [MINUTE, HOUR, DAY] = [60, 3600, 86_400];
let t: TestDatabase;
let clock: TestClock;
let api: TestApi;
let start: Instant;
beforeAll(async () => {
  t = await testDatabase();
  clock = await takeClock(t.db);
  api = testApi(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  await t.db.query('delete from events');
  await t.db.query('delete from clock_watch');
  await t.db.query('insert into clock_watch default values');
  start = await clock.now();
});

const look = async () =>
  (
    await t.db.query<{ look: { kind: string; settlesAt?: Instant } }>('select clock_look($1, 300, 300) as look', [ROOT])
  )[0]!.look;
const kind = async () => (await look()).kind;
/** Seconds from the start of the test that deadlines go by. */
const steady = async () => {
  const [row] = await t.db.query<{ at: Instant }>('select steady_now() as at');
  return (toMillis(row!.at) - toMillis(start)) / 1000;
};
/** So many seconds with a look every minute; answers what the looks said, each once. */
async function watched(seconds: number): Promise<string[]> {
  const said = new Set<string>();
  for (let left = seconds; left > 0; left -= MINUTE) {
    await clock.jump(Math.min(MINUTE, left));
    said.add(await kind());
  }
  return [...said];
}
const events = async () =>
  (await t.db.query<{ type: string; tenant_id: string }>('select type, tenant_id from events order by seq')).map(
    (e) => {
      expect(e.tenant_id).toBe(ROOT);
      return e.type;
    },
  );

test('before anybody looked, the clock is the clock', async () => {
  await clock.jump(400 * DAY);
  expect(await steady()).toBe(400 * DAY);
  expect(await kind()).toBe('steady');
  expect(await events()).toEqual([]);
});

test('while it is looked at often enough, deadlines go by it, small steps back and forth included', async () => {
  await look();
  for (const step of [1, 59, 299, 300, -299, 0.5, -60, 10]) {
    await clock.jump(step);
    expect(await kind()).toBe('steady');
    expect(await steady()).toBe((toMillis(await clock.now()) - toMillis(start)) / 1000);
  }
  expect(await events()).toEqual([]);
});

test('after a jump the steady time stands still, also before anybody noticed, and goes on at once when the clock is back', async () => {
  await look();
  await clock.jump(400 * DAY);
  expect(await steady()).toBe(0);
  expect(await kind()).toBe('jumped');
  expect(await steady()).toBe(0);
  await clock.jump(45);
  expect(await kind()).toBe('away');
  await clock.jump(45);
  expect(await kind()).toBe('away');
  expect(await steady()).toBe(0);
  await clock.jump(-400 * DAY);
  expect(await steady()).toBe(90);
  expect(await kind()).toBe('returned');
  expect(await kind()).toBe('steady');
  expect(await events()).toEqual(['clock.jumped', 'clock.returned']);
});

test.each([
  ['ten minutes', 10 * MINUTE, 5 * MINUTE],
  ['three hours', 3 * HOUR, 9 * MINUTE],
  ['a day', DAY, 72 * MINUTE],
  ['four hundred days', 400 * DAY, DAY],
])('nobody looked for %s: believed after it went steadily for so long, and not before', async (_, away, settles) => {
  await look();
  await clock.jump(away);
  const { settlesAt } = await look();
  expect(toMillis(settlesAt!)).toBe(toMillis(addSeconds(start, away + settles)));
  expect(await watched(settles - MINUTE)).toEqual(['away']);
  expect(await steady()).toBe(0);
  expect(await watched(MINUTE)).toEqual(['accepted']);
  expect(await steady()).toBe(away + settles);
  expect(await watched(10 * MINUTE)).toEqual(['steady']);
  expect(await events()).toEqual(['clock.jumped', 'clock.accepted']);
});

test('a clock that jumps again while it settles begins to settle anew', async () => {
  await look();
  await clock.jump(HOUR);
  await look();
  expect(await watched(4 * MINUTE)).toEqual(['away']);
  await clock.jump(HOUR);
  expect(await kind()).toBe('jumped');
  // A twentieth of two hours and four minutes.
  expect(await watched(6 * MINUTE)).toEqual(['away']);
  expect(await steady()).toBe(0);
  expect(await watched(MINUTE)).toEqual(['accepted']);
});

test('back it is followed at once, and believed there after it settled', async () => {
  await look();
  await clock.jump(-2 * HOUR);
  expect(await steady()).toBe(-2 * HOUR);
  expect(await kind()).toBe('jumped');
  expect(await watched(5 * MINUTE)).toEqual(['away']);
  expect(await steady()).toBe(-2 * HOUR + 5 * MINUTE);
  expect(await watched(MINUTE)).toEqual(['accepted']);
  // From here on the old time would be a jump forward.
  await clock.jump(2 * HOUR);
  expect(await steady()).toBe(-2 * HOUR + 6 * MINUTE);
});

test('many look at once: one notices, and tells it once', async () => {
  await look();
  await clock.jump(HOUR);
  const said = (await Promise.all(Array.from({ length: 12 }, kind))).sort();
  expect(said).toEqual([...Array.from({ length: 11 }, () => 'away'), 'jumped']);
  expect(await events()).toEqual(['clock.jumped']);
});

test('the log of the host says it loudly, once', async () => {
  const said: string[] = [];
  const note =
    (level: string): Log['warn'] =>
    (_, message) =>
      void said.push(`${level}: ${message}`);
  const log: Log = { debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') };
  const settings = { jumpSeconds: 60, settleSeconds: 30 };
  const turn = () => watchClock(t.db, log, ROOT, settings);
  await turn();
  await clock.jump(61);
  for (let i = 0; i < 3; i++) await turn();
  await clock.jump(30);
  for (let i = 0; i < 3; i++) await turn();
  expect(said).toEqual([
    'error: the clock jumped: nothing expires until it is back, or settled where it is',
    'warn: the clock settled: deadlines go on by it',
  ]);
});

describe('an operator', () => {
  test('sees what stands still and until when, and may say that the clock is right', async () => {
    const root = await seedRoot(t.db);
    await look();
    expect(await api.call(root, 'clock.get', {})).toMatchObject({ steady: true, jumpSeconds: 300, settleSeconds: 300 });
    // Within the operator's own session.
    await clock.jump(6 * HOUR);
    await look();
    const doubt = await api.call(root, 'clock.get', {});
    expect(doubt).toMatchObject({ steady: false, awaySince: doubt.now });
    expect(toMillis(doubt.steadyNow)).toBe(toMillis(start));
    expect(toMillis(doubt.settlesAt!) - toMillis(doubt.now)).toBe(18 * MINUTE * 1000);
    const settled = await api.call(root, 'clock.acknowledge', {}, { key: 'k' });
    expect(settled).toMatchObject({ steady: true, steadyNow: doubt.now });
    expect(settled).not.toHaveProperty('awaySince');
    expect(await api.call(root, 'clock.acknowledge', {}, { key: 'k' })).toEqual(settled);
    await api.call(root, 'clock.acknowledge', {}, { key: 'k2' });
    expect(await kind()).toBe('steady');
    expect(await events()).toEqual(['clock.jumped', 'clock.acknowledged']);
    const { items } = await api.call(root, 'audit.list', { action: 'compute:clock:acknowledge' });
    expect(items).toMatchObject([
      { outcome: 'allow', context: { identityId: root.identityId }, data: { before: { steady: false } } },
      { data: { before: { steady: true } } },
    ]);
  });

  test('is one of the platform: a tenant may neither see nor say', async () => {
    await seedRoot(t.db);
    const tenant = await seedTenant(t.db, 'tenant');
    for (const name of ['clock.get', 'clock.acknowledge'] as const) {
      await expect(api.call(tenant, name, {})).rejects.toMatchObject({ code: 'PERMISSION_DENIED', status: 403 });
    }
  });
});
