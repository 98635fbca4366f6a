/** The local server: it keeps its data, survives bad endings, and leaves nothing behind. */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrate } from '#cli/dev/migrate.ts';
import { type PostgresServer, startPostgres } from '#cli/dev/postgres.ts';
import { isAlive } from '#cli/dev/workerd-process.ts';
import { emptyDatabase } from '#kit/database.ts';
import { openPg } from '#plugins/database/node-postgres.ts';

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'postgres-test-')); // mode 0700: what a checkout in a private home is
});
afterEach(() => rmSync(stateDir, { recursive: true, force: true }));

async function on<T>(server: PostgresServer, statement: string): Promise<T> {
  const db = openPg(server.url, { max: 1 });
  try {
    return (await db.query(statement)) as T;
  } finally {
    await db.close();
  }
}

async function until(what: () => boolean): Promise<void> {
  for (let i = 0; i < 300; i++) {
    if (what()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('did not happen within 15 s');
}

/** As root the data lies elsewhere; the link in the state folder says where. */
const dataOf = (server: PostgresServer) =>
  on<{ dir: string }[]>(server, "select current_setting('data_directory') as dir");

test('keeps its data over a stop, a kill and a pid file that names a stranger', async () => {
  const first = await startPostgres({ stateDir, sync: false });
  await on(first, 'create table kept (n int)');
  const [{ dir }] = (await dataOf(first)) as [{ dir: string }];
  await first.stop();

  writeFileSync(join(dir, 'postmaster.pid'), `${process.pid}\n${dir}\n`);
  const second = await startPostgres({ stateDir, sync: false });
  await on(second, 'insert into kept values (1)');
  process.kill(await second.process.pid, 'SIGKILL');
  await second.process.exited;

  const third = await startPostgres({ stateDir, sync: false, port: second.port });
  expect(third.port).toBe(second.port);
  expect(await on(third, 'select n from kept')).toEqual([{ n: 1 }]);
  await third.stop();
  if (dirname(dir) !== stateDir) rmSync(dirname(dir), { recursive: true, force: true });
});

test('a start beside a server that an earlier run left takes its place', async () => {
  const left = await startPostgres({ stateDir, sync: false });
  const pid = await left.process.pid;
  const [{ dir }] = (await dataOf(left)) as [{ dir: string }];
  const next = await startPostgres({ stateDir, sync: false });
  expect(isAlive(pid)).toBe(false);
  expect(await on(next, 'select 1 as n')).toEqual([{ n: 1 }]);
  await next.stop();
  await left.stop();
  if (dirname(dir) !== stateDir) rmSync(dirname(dir), { recursive: true, force: true });
});

test('refuses a wrong password, and sorts by code point', async () => {
  const server = await startPostgres({});
  const wrong = openPg(server.url.replace(/:[^:@/]+@/, ':wrong@'), { max: 1 });
  await expect(wrong.query('select 1')).rejects.toThrow(/password authentication failed/);
  await wrong.close();
  const rows = await on(server, "select x from (values ('b'), ('A'), ('a'), ('_'), ('Z')) v(x) order by x");
  expect(rows).toEqual(['A', 'Z', '_', 'a', 'b'].map((x) => ({ x })));
  await server.stop();
});

test('the SIGKILL of its parent leaves neither process nor temporary data', async () => {
  const program = `
    import { startPostgres } from ${JSON.stringify(new URL('../../cli/dev/postgres.ts', import.meta.url).href)};
    import { openPg } from ${JSON.stringify(new URL('../../plugins/database/node-postgres.ts', import.meta.url).href)};
    const s = await startPostgres({});
    const [{ dir }] = await openPg(s.url).query("select current_setting('data_directory') as dir");
    console.log('pid ' + await s.process.pid + ' ' + dir);`;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [pid, dir] = await new Promise<[number, string]>((resolve) =>
    parent.stdout.on('data', (d: Buffer) => {
      const found = /pid (\d+) (\S+)/.exec(String(d));
      if (found !== null) resolve([Number(found[1]), found[2]!]);
    }),
  );
  expect(isAlive(pid) && existsSync(dir)).toBe(true);
  parent.kill('SIGKILL');
  await until(() => !isAlive(pid) && !existsSync(dir));
});

test('migrations run once, in order, whole; a changed one is refused', async () => {
  const t = await emptyDatabase();
  const dir = mkdtempSync(join(stateDir, 'migrations-'));
  writeFileSync(join(dir, '0001_one.sql'), 'create table one (n int); insert into one values (1);');
  writeFileSync(join(dir, '0002_two.sql'), "alter table one add m text default 'x';");
  writeFileSync(join(dir, 'notes.txt'), 'not a migration');
  let hooks = 0;
  const hook = async () => void hooks++;
  const both = await Promise.all([migrate(t.db, dir, [hook]), migrate(t.db, dir, [hook])]);
  expect(both.flatMap((m) => m.applied).sort()).toEqual(['0001_one.sql', '0002_two.sql']);
  expect(await migrate(t.db, dir)).toEqual({ applied: [], already: 2 });
  expect(hooks).toBe(2);
  expect(await t.db.query('select * from one')).toEqual([{ n: 1, m: 'x' }]);

  writeFileSync(join(dir, '0003_half.sql'), 'create table half (n int); select 1/0;');
  await expect(migrate(t.db, dir)).rejects.toThrow(/0003_half.sql failed: division by zero/);
  expect(await t.db.query("select to_regclass('half') as half")).toEqual([{ half: null }]);
  rmSync(join(dir, '0003_half.sql'));

  writeFileSync(join(dir, '0001_one.sql'), `${readFileSync(join(dir, '0001_one.sql'), 'utf8')} -- changed`);
  await expect(migrate(t.db, dir)).rejects.toThrow(/0001_one.sql was applied with another content/);
  await t.close();
});
