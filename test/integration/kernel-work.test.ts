/** The work queue and the leases, statement by statement, under a clock that the test moves. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addSeconds, toMillis } from '#core/kernel/time.ts';
import { acquireLease, type HeldLease, releaseLease } from '#db/leases.ts';
import { type MutationContext, mutate } from '#db/mutate.ts';
import { backOff, due, enlist, finish, nextDue, postpone, SHARDS, type WorkItem } from '#db/work-queue.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';

let t: TestDatabase;
let clock: TestClock;
beforeAll(async () => {
  t = await testDatabase();
  clock = await takeClock(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  await t.db.query('delete from work_queue');
  await t.db.query('delete from leases');
});

const ALL = Array.from({ length: SHARDS }, (_, i) => i);
const context = (over: Partial<MutationContext> = {}): MutationContext => ({
  db: t.db,
  actor: 'test',
  admission: { system: 'test' },
  ...over,
});

describe('work queue', () => {
  const wake = (key: string, at: string | null = null) => t.db.query('select wake($1, $2, $3)', ['x', key, at]);
  const item = async (key = 'k'): Promise<WorkItem> => (await due(t.db, ALL, ['x'], 100)).find((i) => i.key === key)!;
  const row = async (key = 'k') =>
    (
      await t.db.query<{ generation: number; attempts: number; reason: string; last_error: string; wait: number }>(
        `select generation, attempts, reason, last_error, extract(epoch from not_before - compute_now())::float8 as wait
         from work_queue where kind = 'x' and key = $1`,
        [key],
      )
    )[0];

  test('a wake-up makes a row, and each further one a newer generation that is due at once', async () => {
    await wake('k', addSeconds(await clock.now(), 60));
    expect(await row()).toMatchObject({ generation: 1, wait: 60 });
    await wake('k', addSeconds(await clock.now(), 90));
    expect(await row()).toMatchObject({ generation: 2, wait: 60 });
    await wake('k');
    expect(await row()).toMatchObject({ generation: 3, wait: 0 });
  });

  test('finishing, postponing and backing off touch the generation that was read and no other', async () => {
    await wake('k');
    const old = await item();
    await wake('k');
    await finish(t.db, old);
    await postpone(t.db, old, 'old news', addSeconds(await clock.now(), 60));
    await backOff(t.db, old, 'old fault', 0.5);
    expect(await row()).toEqual({ generation: 2, attempts: 0, reason: null, last_error: null, wait: 0 });
    const seen = await item();
    await postpone(t.db, seen, 'for its turn', addSeconds(await clock.now(), 60));
    expect(await row()).toMatchObject({ generation: 2, reason: 'for its turn', wait: 60 });
    await finish(t.db, seen);
    expect(await row()).toBeUndefined();
  });

  test('the back-off doubles with full jitter up to five minutes; a wake-up and a success begin anew', async () => {
    await wake('k');
    for (let attempts = 0; attempts < 14; attempts++) {
      const ceiling = Math.min(300, 2 ** attempts);
      for (const roll of [0, 0.25, 0.999]) {
        await t.db.query(`update work_queue set attempts = $1, not_before = compute_now() where key = 'k'`, [attempts]);
        await backOff(t.db, await item(), `fault ${attempts}`, roll);
        const after = (await row())!;
        expect(after).toMatchObject({ attempts: attempts + 1, last_error: `fault ${attempts}` });
        expect(after.wait).toBeCloseTo(Math.max(0.2, ceiling * roll), 3);
      }
    }
    expect(await item()).toBeUndefined();
    await wake('k');
    expect(await row()).toMatchObject({ attempts: 0, wait: 0 });
    await backOff(t.db, await item(), 'again', 0.5);
    await clock.pass(1);
    await postpone(t.db, await item(), 'waits', addSeconds(await clock.now(), 5));
    expect(await row()).toMatchObject({ attempts: 0, last_error: null, reason: 'waits' });
  });

  test('due rows come oldest first, of the kinds and shards that were asked for, and no sooner', async () => {
    for (const [key, seconds] of [
      ['late', 3],
      ['early', 1],
      ['middle', 2],
    ] as const) {
      await wake(key, addSeconds(await clock.now(), seconds));
    }
    await t.db.query(`select wake('y', 'other')`);
    expect(await due(t.db, ALL, ['x'], 10)).toEqual([]);
    expect(await nextDue(t.db, ALL, ['x'])).toEqual({ dueInMs: 1000 });
    await clock.pass(2);
    expect((await due(t.db, ALL, ['x'], 10)).map((i) => i.key)).toEqual(['early', 'middle']);
    expect((await due(t.db, ALL, ['x'], 1)).map((i) => i.key)).toEqual(['early']);
    await clock.pass(1);
    const everywhere = await Promise.all(ALL.map((shard) => due(t.db, [shard], ['x', 'y'], 10)));
    expect(
      everywhere
        .flat()
        .map((i) => i.key)
        .sort(),
    ).toEqual(['early', 'late', 'middle', 'other']);
    expect(await nextDue(t.db, ALL, ['x'])).toEqual({ dueInMs: 0 });
    expect(await nextDue(t.db, ALL, ['z'])).toBeUndefined();
  });

  test('every key has one shard of the sixteen, and all sixteen get work', async () => {
    const keys = Array.from({ length: 2000 }, (_, i) => `key-${i}`);
    await enlist(t.db, 'x', keys);
    const rows = await t.db.query<{ shard: number; n: number }>(
      'select shard, count(*) as n from work_queue group by shard order by shard',
    );
    expect(rows.map((r) => r.shard)).toEqual(ALL);
    expect(rows.every((r) => r.n > 60 && r.n < 190)).toBe(true);
  });

  test('changes that wake the same keys in any order do not deadlock', async () => {
    const keys = Array.from({ length: 12 }, (_, i) => `k${i}`);
    let closures = 0;
    await Promise.all(
      Array.from({ length: 30 }, (_, n) =>
        mutate(context(), async (tx) => {
          closures++;
          const mine = n % 2 === 0 ? keys : [...keys].reverse();
          for (const key of mine) tx.wake('x', key);
        }),
      ),
    );
    // A deadlock would have run a closure again.
    expect(closures).toBe(30);
    expect(new Set((await due(t.db, ALL, ['x'], 100)).map((i) => i.generation))).toEqual(new Set([30]));
  });
});

describe('leases', () => {
  const acquire = (holder: string, seconds = 30) => acquireLease(t.db, 'shard:0', holder, seconds);
  const write = (lease: HeldLease, key: string, before: () => Promise<unknown> = async () => {}) =>
    mutate(context({ fence: { name: lease.name, epoch: lease.epoch } }), async (tx) => {
      await before();
      tx.wake('x', key);
    });
  const written = async () => (await due(t.db, ALL, ['x'], 10)).map((i) => i.key).sort();

  test('of twenty who ask at once one gets it, and keeps its epoch as it renews', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => acquire(`h${i}`)));
    const held = answers.filter((a) => a !== undefined);
    expect(held).toMatchObject([{ epoch: 1 }]);
    await clock.pass(29);
    const renewed = await acquire(held[0]!.holder);
    expect(renewed).toMatchObject({ epoch: 1, holder: held[0]!.holder });
    expect(toMillis(renewed!.expiresAt) - toMillis(await clock.now())).toBe(30_000);
    expect(await acquire('somebody-else')).toBeUndefined();
  });

  test('the epoch rises whenever a tenure begins: after expiry, after release, also for the same holder', async () => {
    const first = (await acquire('a'))!;
    await clock.pass(30);
    expect(await acquire('a')).toMatchObject({ epoch: 2 });
    await clock.pass(31);
    const third = (await acquire('b'))!;
    expect(third).toMatchObject({ epoch: 3, holder: 'b' });
    // Releasing what one no longer holds ends nothing.
    await releaseLease(t.db, first);
    expect(await acquire('c')).toBeUndefined();
    await releaseLease(t.db, third);
    expect(await acquire('c')).toMatchObject({ epoch: 4, holder: 'c' });
  });

  test('a write under the old epoch is refused after the takeover, and the new one goes through', async () => {
    const old = (await acquire('a'))!;
    await write(old, 'one');
    await clock.pass(31);
    // Run out, and taken by nobody: there is no one to be fenced from.
    await write(old, 'two');
    const now = (await acquire('b'))!;
    await expect(write(old, 'never')).rejects.toMatchObject({ code: 'STALE_EPOCH' });
    await write(now, 'three');
    expect(await written()).toEqual(['one', 'three', 'two']);
  });

  test('a takeover waits for a write that was let in, so that nothing of the old owner commits after it', async () => {
    const old = (await acquire('a'))!;
    await clock.pass(31);
    let commit = () => {};
    const held = new Promise<void>((resolve) => {
      commit = resolve;
    });
    let inside = () => {};
    const isInside = new Promise<void>((resolve) => {
      inside = resolve;
    });
    const stalled = write(old, 'in-flight', () => {
      inside();
      return held;
    });
    await isInside;
    const taking = acquire('b').then(async (lease) => ({ ...lease, seen: await written() }));
    const waits = () =>
      t.db.query(`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`);
    await expect.poll(async () => (await waits()).length).toBe(1);
    commit();
    await stalled;
    expect(await taking).toMatchObject({ epoch: 2, holder: 'b', seen: ['in-flight'] });
  });
});
