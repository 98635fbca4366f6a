/** The queue loop against real Postgres: what it must never lose, never block on, never do twice harmfully. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Log } from '#core/kernel/log.ts';
import { type Outcome, settled, wait } from '#core/kernel/outcome.ts';
import { addSeconds, systemClock } from '#core/kernel/time.ts';
import { mutate } from '#db/mutate.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { nodeHost } from '#reconcilers/node-host.ts';
import { type RunOptions, runDue } from '#reconcilers/runtime/engine.ts';
import type { Reconciler } from '#reconcilers/runtime/reconciler.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';

const quiet: Log = { debug() {}, info() {}, warn() {}, error() {} };
const ALL = Array.from({ length: 16 }, (_, i) => i);

let t: TestDatabase;
beforeAll(async () => {
  t = await testDatabase();
});
afterAll(() => t.close());
beforeEach(async () => {
  await t.db.query('delete from work_queue');
  await t.db.query('delete from leases');
});

const wake = (kind: string, key: string) => t.db.query('select wake($1, $2)', [kind, key]);
const queued = () =>
  t.db.query<{ kind: string; key: string; attempts: number; last_error: string | null; reason: string | null }>(
    `select kind, key, attempts, last_error, reason from work_queue where kind <> 'sweep' order by kind, key`,
  );
function drain(reconcilers: readonly Reconciler[], over: Partial<RunOptions> = {}) {
  return runDue({
    db: t.db,
    reconcilers,
    shards: ALL,
    clock: systemClock,
    log: quiet,
    random: () => 0.5,
    budgetMs: 10_000,
    limit: 100,
    ...over,
  });
}
function reconciler(kind: string, run: Reconciler['run'], more: Partial<Reconciler> = {}): Reconciler {
  return { kind, run, ...more };
}

test('runs what is due, stores the reason and the recheck time of what waits', async () => {
  const seen: string[] = [];
  const later = reconciler('x', async (ctx, key): Promise<Outcome> => {
    seen.push(key);
    return key === 'waits' ? wait('for its turn', addSeconds(ctx.now, 60)) : settled;
  });
  await wake('x', 'done');
  await wake('x', 'waits');
  await wake('other', 'unserved');
  const report = await drain([later]);
  expect(seen.sort()).toEqual(['done', 'waits']);
  expect(report).toMatchObject({ ran: 2, failed: 0, fenced: false });
  expect(report.nextDueMs).toBeGreaterThan(50_000);
  expect(await queued()).toMatchObject([{ key: 'unserved' }, { key: 'waits', reason: 'for its turn' }]);
});

test('a wake-up during the run is not lost', async () => {
  let runs = 0;
  const woken = reconciler('x', async () => {
    if (++runs === 1) await wake('x', 'k');
    return settled;
  });
  await wake('x', 'k');
  await drain([woken]);
  expect(runs).toBe(2);
  expect(await queued()).toEqual([]);
});

test('a wake-up that commits long after later ones is found', async () => {
  const seen: string[] = [];
  const any = reconciler('x', async (_, key) => {
    seen.push(key);
    return settled;
  });
  let commit = () => {};
  const held = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let written = () => {};
  const isWritten = new Promise<void>((resolve) => {
    written = resolve;
  });
  const late = t.db.transaction(async (tx) => {
    await tx.query(`select wake('x', 'late')`);
    written();
    await held;
  });
  await isWritten;
  await wake('x', 'early');
  await drain([any]);
  expect(seen).toEqual(['early']);
  commit();
  await late;
  await drain([any]);
  expect(seen).toEqual(['early', 'late']);
});

test('a failing row backs off with its error and does not block the others', async () => {
  const seen: string[] = [];
  const poison = reconciler('x', async (_, key) => {
    if (key === '00-poison') throw new Error('cannot');
    seen.push(key);
    return settled;
  });
  await wake('x', '00-poison');
  for (let i = 0; i < 40; i++) await wake('x', `k${i}`);
  const report = await drain([poison], { parallel: 1 });
  expect(report).toMatchObject({ ran: 41, failed: 1 });
  expect(seen).toHaveLength(40);
  expect(await queued()).toMatchObject([{ key: '00-poison', attempts: 1, last_error: 'Error: cannot' }]);
  expect(report.nextDueMs).toBeGreaterThan(0);
  await t.db.query('update work_queue set not_before = compute_now()');
  await drain([poison]);
  expect(await queued()).toMatchObject([{ key: '00-poison', attempts: 2 }]);
});

test('a run that hangs costs its own deadline only', async () => {
  let aborted = false;
  const hangs = reconciler(
    'x',
    (ctx, key) =>
      key === 'fine'
        ? Promise.resolve(settled)
        : new Promise(() => {
            ctx.signal.addEventListener('abort', () => {
              aborted = true;
            });
          }),
    { deadlineSeconds: 0.05 },
  );
  await wake('x', 'fine');
  await wake('x', 'hangs');
  const report = await drain([hangs]);
  expect(report).toMatchObject({ ran: 2, failed: 1 });
  expect(aborted).toBe(true);
  expect(await queued()).toMatchObject([{ key: 'hangs', last_error: 'Error: took longer than 0.05 s' }]);
});

test('endless work gives way, and the call ends at its bounds', async () => {
  let steps = 0;
  let other = 0;
  const endless = reconciler('x', async () => {
    steps++;
    return { kind: 'again', did: 'one more' };
  });
  const fair = reconciler('y', async () => {
    other++;
    return settled;
  });
  await wake('x', 'k');
  await wake('y', 'k');
  const report = await drain([endless, fair], { parallel: 1, limit: 5 });
  expect(report.ran).toBe(5);
  expect(report.nextDueMs).toBe(0);
  expect(steps).toBe(32);
  expect(other).toBe(1);
});

test('two runners at once do no harm: every effect that is guarded by the row happens once', async () => {
  await t.db.query('create table if not exists effects (key text primary key, n int not null default 0)');
  const idempotent = reconciler('x', async (ctx, key) => {
    await mutate(ctx, async (tx) => {
      await tx.query('insert into effects (key, n) values ($1, 1) on conflict do nothing', [key]);
    });
    return settled;
  });
  for (let i = 0; i < 60; i++) await wake('x', `k${i}`);
  const reports = await Promise.all([drain([idempotent]), drain([idempotent]), drain([idempotent])]);
  expect(reports.every((r) => r.failed === 0)).toBe(true);
  expect(await t.db.query('select count(*) as rows, sum(n) as sum from effects')).toMatchObject([{ rows: 60 }]);
  expect(await queued()).toEqual([]);
  await t.db.query('drop table effects');
});

test('a sweep queues what no commit wakes, once a period, and leaves a back-off alone', async () => {
  let swept = 0;
  const seen: string[] = [];
  const swept2 = reconciler(
    'x',
    async (_, key) => {
      seen.push(key);
      if (key === 'bad') throw new Error('still bad');
      return settled;
    },
    {
      sweep: {
        everySeconds: 30,
        keys: async () => {
          swept++;
          return ['a', 'bad'];
        },
      },
    },
  );
  await ensureSweeps(t.db, [swept2]);
  await ensureSweeps(t.db, [swept2]);
  await drain([swept2], { random: () => 0.99 });
  expect(swept).toBe(1);
  expect(seen.sort()).toEqual(['a', 'bad']);
  await drain([swept2]);
  expect(swept).toBe(1);
  await t.db.query(`update work_queue set not_before = compute_now() where kind = 'sweep'`);
  await t.db.query(`update work_queue set not_before = compute_now() + interval '1 hour' where key = 'bad'`);
  await drain([swept2]);
  expect(swept).toBe(2);
  expect(seen.filter((k) => k === 'bad')).toHaveLength(1);
});

test('a stale owner may not write, and its turn ends', async () => {
  const lease = 'shard:test';
  const [first] = await t.db.query<{ epoch: number }>('select epoch from lease_acquire($1, $2, 30)', [lease, 'old']);
  const seen: string[] = [];
  const writes = reconciler('x', async (ctx, key) => {
    await mutate(ctx, async (tx) => {
      tx.wake('y', key);
    });
    seen.push(key);
    return settled;
  });
  for (const k of ['a', 'b', 'c']) await wake('x', k);
  await t.db.query(`update leases set expires_at = compute_now() where name = $1`, [lease]);
  const [second] = await t.db.query<{ epoch: number }>('select epoch from lease_acquire($1, $2, 30)', [lease, 'new']);
  expect(second!.epoch).toBe(first!.epoch + 1);
  const stale = await drain([writes], { fence: { name: lease, epoch: first!.epoch }, parallel: 1 });
  expect(stale).toMatchObject({ ran: 1, fenced: true });
  expect(seen).toEqual([]);
  expect((await queued()).map((r) => [r.kind, r.attempts])).toEqual([
    ['x', 0],
    ['x', 0],
    ['x', 0],
  ]);
  const live = await drain([writes], { fence: { name: lease, epoch: second!.epoch } });
  expect(live).toMatchObject({ ran: 3, failed: 0, fenced: false });
});

test('the Node host keeps working through lost connections and takes its leases again', async () => {
  const seen: string[] = [];
  const any = reconciler('x', async (_, key) => {
    seen.push(key);
    return settled;
  });
  const host = nodeHost({
    db: t.db,
    reconcilers: [any],
    clock: systemClock,
    log: quiet,
    random: Math.random,
    holder: 'host-1',
  });
  host.start();
  const until = async (key: string) => {
    await expect.poll(() => seen.includes(key), { timeout: 20_000, interval: 20 }).toBe(true);
  };
  await wake('x', 'one');
  host.poke();
  await until('one');
  for (let i = 0; i < 5; i++) {
    const admin = await t.db
      .query(
        'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
      )
      .catch(() => []);
    expect(admin).toBeDefined();
  }
  for (let tries = 0; ; tries++) {
    try {
      await wake('x', 'two');
      break;
    } catch (e) {
      if (tries > 20) throw e;
    }
  }
  host.poke();
  await until('two');
  await host.stop();
  const leases = await t.db.query<{ name: string; holder: string }>('select name, holder from leases order by name');
  expect(leases).toEqual([0, 1, 2, 3].map((n) => ({ name: `shard:${n}`, holder: 'host-1' })));
});
