/** The same cases on every database handle: a value, an error and a lost connection look alike, whichever brought them. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Database, DatabaseUnavailable, SqlError } from '#core/kernel/database.ts';
import { emptyDatabase, type TestDatabase } from '#kit/database.ts';
import { openNeon } from '#plugins/database/neon.ts';
import { openPg, type PgDatabase } from '#plugins/database/node-postgres.ts';

let t: TestDatabase;
let admin: PgDatabase;
const handles: Record<string, () => Database> = { 'node-postgres': () => t.db, neon: () => t.neon };

beforeAll(async () => {
  t = await emptyDatabase({ max: 8 });
  admin = openPg(t.url, { max: 1, applicationName: 'admin' });
  await admin.query('create table parent (id text primary key)');
  await admin.query(
    `create table item (id int primary key, name text not null, parent text references parent(id) deferrable initially deferred,
       constraint item_name_unique unique (name), constraint item_name_short check (length(name) < 20))`,
  );
});
afterAll(async () => {
  await admin?.close();
  await t?.close();
});

async function failure(run: Promise<unknown>): Promise<unknown> {
  return run.then(
    (v) => {
      throw new Error(`expected a failure, got ${JSON.stringify(v)}`);
    },
    (e: unknown) => e,
  );
}

describe.each(Object.keys(handles))('%s', (name) => {
  const db = () => handles[name]!();

  test('gives each type its documented value', async () => {
    const statement = `select
      timestamptz '2026-12-01 08:00:00.123456+02' as micro, timestamptz '2026-12-01 06:00:00+00' as whole,
      timestamptz 'infinity' as never, 9007199254740991::int8 as big, 7::int4 as int, 7::int2 as small, 1.10::numeric as exact,
      1.5::float8 as float, true as yes, false as no, null::int as nothing, '{"a":[1,2.5,null,"x"]}'::jsonb as doc,
      '[]'::json as list, '\\x00ff10'::bytea as raw, array['a','b,c','"q"','NULL',null]::text[] as texts,
      array[1,2]::int8[] as ints, array['{"k":1}'::jsonb] as docs, array[timestamptz '2026-12-01Z'] as instants,
      date '2026-12-01' as day, '0190a000-0000-7000-8000-000000000000'::uuid as uuid, 'r'::"char" as letter, '42'::xid8 as xid`;
    const expected = {
      micro: '2026-12-01T06:00:00.123456Z',
      whole: '2026-12-01T06:00:00.000000Z',
      never: 'infinity',
      big: 9007199254740991,
      int: 7,
      small: 7,
      exact: '1.10',
      float: 1.5,
      yes: true,
      no: false,
      nothing: null,
      doc: { a: [1, 2.5, null, 'x'] },
      list: [],
      raw: new Uint8Array([0, 255, 16]),
      texts: ['a', 'b,c', '"q"', 'NULL', null],
      ints: [1, 2],
      docs: [{ k: 1 }],
      instants: ['2026-12-01T00:00:00.000000Z'],
      day: '2026-12-01',
      uuid: '0190a000-0000-7000-8000-000000000000',
      letter: 'r',
      xid: '42',
    };
    expect((await db().query(statement))[0]).toStrictEqual(expected);
    expect(await db().transaction(async (tx) => (await tx.query(statement))[0])).toStrictEqual(expected);
  });

  test('takes each kind of parameter back unchanged', async () => {
    const statement =
      'select $1::text as t, $2::int8 as i, $3::bool as b, $4::text as n, $5::bytea as raw, $6::text[] as texts, $7::int4[] as ints, $8::jsonb as doc, $9::timestamptz as at, $10::float8 as f';
    const texts = ['a', '', 'with "quotes" and \\', '{braces},', 'NULL', 'ü\n'];
    const params = ['ü \u{1F600} \\ \'"', 42, true, null, new Uint8Array([0, 92, 255]), texts, [1, -2], '{"a":"\\""}'];
    const at = '2026-12-01T06:00:00.123456Z';
    const expected = {
      t: params[0],
      i: 42,
      b: true,
      n: null,
      raw: params[4],
      texts,
      ints: [1, -2],
      doc: { a: '"' },
      at,
      f: 0.1,
    };
    const all = [...params, at, 0.1] as never;
    expect((await db().query(statement, all))[0]).toStrictEqual(expected);
    expect(await db().transaction(async (tx) => (await tx.query(statement, all))[0])).toStrictEqual(expected);
    expect(await db().query('select cardinality($1::text[]) as n', [[]])).toEqual([{ n: 0 }]);
  });

  test('runs in UTC', async () => {
    expect(await db().query("select current_setting('TimeZone') as zone")).toEqual([{ zone: 'UTC' }]);
    const zone = await db().transaction((tx) => tx.query("select current_setting('TimeZone') as zone"));
    expect(zone).toEqual([{ zone: 'UTC' }]);
  });

  test('refuses an integer that a number cannot hold, and the handle lives on', async () => {
    const e = await failure(db().query('select 9007199254740993::int8 as n'));
    expect(e).toBeInstanceOf(RangeError);
    expect(await db().query('select 1 as n')).toEqual([{ n: 1 }]);
  });

  test('refuses a second statement behind a semicolon', async () => {
    const e = await failure(db().query('select 1; select 2'));
    expect(e).toMatchObject({ name: 'SqlError', sqlstate: '42601' });
  });

  test('names SQLSTATE, constraint, table, detail and hint', async () => {
    await db().query('insert into item (id, name) values (1, $1) on conflict do nothing', ['one']);
    const insert = "insert into item (id, name) values (2, 'one')";
    const expected = { sqlstate: '23505', constraint: 'item_name_unique', table: 'item', detail: expect.any(String) };
    expect(await failure(db().query(insert))).toMatchObject(expected);
    expect(await failure(db().transaction((tx) => tx.query(insert)))).toMatchObject(expected);
    const raise = `do $$ begin raise exception 'no' using errcode = 'BC002', detail = 'd', hint = 'h', constraint = 'c', table = 't'; end $$`;
    const e = await failure(db().query(raise));
    expect(e).toBeInstanceOf(SqlError);
    expect(e).toMatchObject({ message: 'no', sqlstate: 'BC002', detail: 'd', hint: 'h', constraint: 'c', table: 't' });
  });

  test('rolls back what threw, and hands the same error on', async () => {
    const mine = new Error('mine');
    const run = db().transaction(async (tx) => {
      await tx.query("insert into item (id, name) values (100, 'rolled back')");
      throw mine;
    });
    expect(await failure(run)).toBe(mine);
    expect(await db().query('select 1 from item where id = 100')).toEqual([]);
  });

  test('an error that was swallowed inside does not pass for a commit', async () => {
    const run = db().transaction(async (tx) => {
      await tx.query("insert into item (id, name) values (101, 'lost')");
      await tx.query('select 1/0').catch(() => {});
    });
    expect(await failure(run)).toMatchObject({ sqlstate: '25P02' });
    expect(await db().query('select 1 from item where id = 101')).toEqual([]);
  });

  test('a constraint that is checked at commit fails the transaction', async () => {
    const run = db().transaction((tx) =>
      tx.query("insert into item (id, name, parent) values (102, 'orphan', 'none')"),
    );
    expect(await failure(run)).toMatchObject({ sqlstate: '23503', constraint: 'item_parent_fkey' });
  });

  test('the transaction is dead once it is over', async () => {
    let leaked: { query(text: string): Promise<unknown> } | undefined;
    await db().transaction(async (tx) => {
      leaked = tx;
    });
    await expect(leaked!.query('select 1')).rejects.toThrow('the transaction is over');
  });

  test('an unreachable server is DatabaseUnavailable, on both paths', async () => {
    const url = 'postgres://postgres:x@127.0.0.1:1/none';
    const pg = openPg(url, { connectTimeoutMs: 500 });
    const down = name === 'neon' ? openNeon(url, { localProxy: '127.0.0.1:1', connectTimeoutMs: 500 }) : pg;
    expect(await failure(down.query('select 1'))).toBeInstanceOf(DatabaseUnavailable);
    expect(await failure(down.transaction((tx) => tx.query('select 1')))).toBeInstanceOf(DatabaseUnavailable);
    await pg.close();
  });

  test('the server ends a statement at its deadline', async () => {
    const pg = openPg(t.url, { statementTimeoutMs: 100 });
    const hasty = name === 'neon' ? openNeon(t.url, { localProxy: t.neonProxy, statementTimeoutMs: 100 }) : pg;
    const run = hasty.transaction((tx) => tx.query('select pg_sleep(30)'));
    expect(await failure(run)).toMatchObject({ name: 'SqlError', sqlstate: '57014' });
    await pg.close();
  });

  test('connections that are killed under load cost their requests alone, and none is half committed', async () => {
    await admin.query('create table if not exists load (batch text, half int)');
    await admin.query('truncate load');
    let go = true;
    const seen: unknown[] = [];
    let commits = 0;
    const worker = async (w: number) => {
      for (let i = 0; go; i++) {
        try {
          await db().transaction(async (tx) => {
            await tx.query('select pg_advisory_xact_lock($1)', [w]);
            await tx.query('insert into load values ($1, 1)', [`${w}/${i}`]);
            await tx.query('insert into load values ($1, 2)', [`${w}/${i}`]);
          });
          commits++;
          await db().query('select 1');
        } catch (e) {
          seen.push(e);
        }
      }
    };
    const load = Promise.all([1, 2, 3, 4].map(worker));
    for (let round = 0; round < 5; round++) {
      const before = commits;
      while (commits < before + 8) await new Promise((resolve) => setTimeout(resolve, 5));
      await admin.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
      );
    }
    const before = commits;
    while (commits < before + 8) await new Promise((resolve) => setTimeout(resolve, 5));
    go = false;
    await load;
    for (const e of seen) expect(e).toBeInstanceOf(DatabaseUnavailable);
    expect(await admin.query('select batch from load group by batch having count(*) <> 2')).toEqual([]);
    expect(await db().query('select 1 as n')).toEqual([{ n: 1 }]);
  });
});

test('every slot taken: a further caller fails within its deadline and gets a slot later', async () => {
  const narrow = openPg(t.url, { max: 1, connectTimeoutMs: 200 });
  let free: () => void = () => {};
  const held = narrow.transaction(() => new Promise<void>((resolve) => (free = resolve)));
  expect(await failure(narrow.query('select 1'))).toBeInstanceOf(DatabaseUnavailable);
  free();
  await held;
  expect(await narrow.query('select 1 as n')).toEqual([{ n: 1 }]);
  await narrow.close();
});
