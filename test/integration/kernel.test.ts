/** mutate() against real Postgres: a change is carried whole or not at all, and runs again when it must. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ROOT } from '#core/iam/root.ts';
import { newId } from '#core/kernel/ids.ts';
import { type MutationContext, mutate, type Tx } from '#db/mutate.ts';
import { PolicyChanged } from '#db/sql-problem.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { installFate } from '#kit/fate.ts';

let t: TestDatabase;
const poked: { kind: string; key: string }[][] = [];
beforeAll(async () => {
  t = await testDatabase();
  await installFate(t.db);
});
afterAll(() => t?.close());
beforeEach(async () => {
  poked.length = 0;
  await t.db.query("select setval('runs', 1, false)");
});

const code = (c: string) => expect.objectContaining({ code: c });
const context = (over: Partial<MutationContext> = {}): MutationContext => ({
  db: t.db,
  actor: 'test',
  admission: { identityId: 'idn', requestId: 'req-1', traceparent: '00-trace' },
  poke: (wakes) => void poked.push([...wakes]),
  ...over,
});

async function counts() {
  const [row] = await t.db.query<Record<string, number>>(
    `select (select count(*) from sites) as sites, (select count(*) from events) as events,
       (select count(*) from work_queue) as wakes, (select count(*) from authz_resources) as projections,
       (select count(*) from audit_events) as audits, (select count(*) from idempotency_keys) as keys`,
  );
  return row!;
}
const runs = async () => (await t.db.query<{ n: number }>("select nextval('runs') as n"))[0]!.n - 1;

const insertSite = (tx: Pick<Tx, 'query'>, id: string) =>
  tx.query('insert into sites (id, tenant_id, name) values ($1, $2, $1)', [id, ROOT]);

/** A row and everything that can go with it. */
async function everything(tx: Tx, id: string): Promise<void> {
  await insertSite(tx, id);
  tx.emit({ type: 'site.created', tenantId: ROOT, kind: 'site', id, data: { id } });
  tx.wake('x', id);
  tx.project({ type: 'compute-site', id, tenantId: ROOT, attributes: { name: id } });
  tx.audit({ tenantId: ROOT, action: 'compute:sites:create', type: 'compute-site', id });
}

describe('a change is carried whole', () => {
  test('row, event, wake-up, authz row and audit record stand in one transaction; the poke comes after it', async () => {
    const id = newId('site');
    let visible: number | undefined;
    const poke = (wakes: readonly { kind: string; key: string }[]) => void poked.push([...wakes]);
    await mutate(context({ poke }), async (tx) => {
      await everything(tx, id);
      visible = (await t.db.query('select 1 from sites where id = $1', [id])).length;
      expect(poked).toEqual([]);
    });
    expect(visible).toBe(0);
    const rows = await t.db.query<{ xid: string }>(
      `select xmin::text as xid from sites where id = $1
       union all select xmin::text from events where subject_id = $1 and xid::text = xmin::text
       union all select xmin::text from work_queue where key = $1
       union all select xmin::text from authz_resources where id = $1
       union all select xmin::text from audit_events where resource_id = $1`,
      [id],
    );
    expect(rows).toHaveLength(5);
    expect(new Set(rows.map((r) => r.xid)).size).toBe(1);
    expect(poked).toEqual([[{ kind: 'x', key: id }]]);
    expect(await t.db.query('select outcome, context from audit_events where resource_id = $1', [id])).toEqual([
      { outcome: 'allow', context: { identityId: 'idn', requestId: 'req-1', traceparent: '00-trace' } },
    ]);
    expect(await t.db.query('select traceparent from events where subject_id = $1', [id])).toEqual([
      { traceparent: '00-trace' },
    ]);
  });

  const fails: Record<string, { code: string; run: (tx: Tx, id: string) => unknown; over?: Partial<MutationContext> }> =
    {
      'the closure throws': { code: 'INTERNAL', run: () => Promise.reject(new Error('no')) },
      'a constraint refuses the row': {
        code: 'CONFLICT',
        run: (tx, id) =>
          tx.query('insert into sites (id, tenant_id, name) values ($1, $2, $3)', [newId('site'), ROOT, id]),
      },
      'the event is refused': {
        code: 'INTERNAL',
        run: (tx) => tx.emit({ type: null as never, tenantId: ROOT, kind: 'site', id: 'x', data: {} }),
      },
      'the wake-up is refused': { code: 'INTERNAL', run: (tx) => tx.wake('x', 'y', 'no instant') },
      'the authz row is refused': {
        code: 'INTERNAL',
        run: (tx) => tx.project({ type: 'compute-site', id: 'x', tenantId: null as never }),
      },
      'the audit record is refused': {
        code: 'INTERNAL',
        run: (tx) => tx.audit({ tenantId: ROOT, action: null as never, type: 'compute-site', id: 'x' }),
      },
      'the COMMIT is refused': { code: 'INTERNAL', run: (tx) => tx.query("insert into fate values ('XX000')") },
      'the connection dies in the COMMIT': {
        code: 'UNAVAILABLE',
        run: (tx) => tx.query("insert into fate values ('killed')"),
      },
      'the lease has a newer owner': {
        code: 'STALE_EPOCH',
        run: () => {},
        over: { fence: { name: 'none', epoch: 1 } },
      },
    };
  test.each(Object.entries(fails))('or not at all, when %s', async (_, { code: wanted, run, over }) => {
    const before = await counts();
    const id = newId('site');
    const tried = mutate(context(over), async (tx) => {
      await everything(tx, id);
      await run(tx, id);
    });
    await expect(tried).rejects.toEqual(code(wanted));
    expect(await counts()).toEqual(before);
    expect(poked).toEqual([]);
  });

  test('or not at all, when the policies moved since the decision', async () => {
    const [before] = await t.db.query<{ epoch: number }>('select epoch from iam.policy_epoch');
    const ok = newId('site');
    await mutate(context({ policyEpoch: before!.epoch }), (tx) => everything(tx, ok));
    await t.db.query('update iam.policy_epoch set epoch = epoch + 1');
    const rows = await counts();
    const late = mutate(context({ policyEpoch: before!.epoch }), (tx) => everything(tx, newId('site')));
    await expect(late).rejects.toBeInstanceOf(PolicyChanged);
    expect(await counts()).toEqual(rows);
  });

  test('and nothing of it can be read before the commit, nor after a crash of its writer', async () => {
    const before = await counts();
    const id = newId('site');
    const dies = mutate(context(), async (tx) => {
      await everything(tx, id);
      const [me] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid');
      await t.db.query('select pg_terminate_backend($1)', [me!.pid]);
    });
    await expect(dies).rejects.toEqual(code('UNAVAILABLE'));
    expect(await counts()).toEqual(before);
  });
});

describe('the closure runs again', () => {
  test.each(['40001', '40P01', '23P01'])('after %s, and its earlier runs leave nothing', async (sqlstate) => {
    const before = await counts();
    const id = newId('site');
    await mutate(context(), async (tx) => {
      await everything(tx, id);
      await tx.query('select raise_until(5, $1)', [sqlstate]);
    });
    expect(await runs()).toBe(5);
    const after = await counts();
    for (const what of ['sites', 'events', 'wakes', 'projections', 'audits']) {
      expect([what, after[what]]).toEqual([what, before[what]! + 1]);
    }
    expect(poked).toEqual([[{ kind: 'x', key: id }]]);
  });

  test.each(['40001', '40P01', '23P01'])('five times at most after %s, and the caller is told to repeat', async (s) => {
    const before = await counts();
    const tried = mutate(context(), async (tx) => {
      await everything(tx, newId('site'));
      await tx.query('select raise_until(99, $1)', [s]);
    });
    await expect(tried).rejects.toMatchObject({ code: 'CONTENTION', spec: { retry: 'same-key' } });
    expect(await runs()).toBe(5);
    expect(await counts()).toEqual(before);
  });

  test('also when only the COMMIT says so', async () => {
    let closures = 0;
    const id = newId('site');
    await mutate(context(), async (tx) => {
      await insertSite(tx, id);
      if (++closures < 3) await tx.query("insert into fate values ('40001')");
    });
    expect(closures).toBe(3);
    expect(await t.db.query('select 1 from sites where id = $1', [id])).toHaveLength(1);
  });

  test('not after any other refusal', async () => {
    await expect(mutate(context(), (tx) => tx.query("select raise_until(99, '23514')"))).rejects.toEqual(
      code('CONTENTION'),
    );
    expect(await runs()).toBe(1);
  });

  test('so that two changes that lock the same rows crosswise both commit', async () => {
    const [a, b] = [newId('site'), newId('site')];
    for (const id of [a, b]) await insertSite(t.db, id);
    let met = 0;
    let meet = () => {};
    const both = new Promise<void>((resolve) => {
      meet = resolve;
    });
    const add = (first: string, second: string) =>
      mutate(context(), async (tx) => {
        await tx.query('update sites set version = version + 1 where id = $1', [first]);
        if (++met >= 2) meet();
        await both;
        await tx.query('update sites set version = version + 1 where id = $1', [second]);
      });
    await Promise.all([add(a, b), add(b, a)]);
    expect(met).toBe(3);
    expect(await t.db.query('select version from sites where id = any($1)', [[a, b]])).toEqual([
      { version: 3 },
      { version: 3 },
    ]);
  });
});
