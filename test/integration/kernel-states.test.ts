/**
 * Every state machine, every pair of state and event, executed in the database: what the table says is legal passes with
 * its history, everything else is refused, whoever tries and however.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { allowedEvents, next, type StateTable } from '#core/kernel/state-table.ts';
import { STATE_TABLES } from '#core/states.ts';
import { mutate } from '#db/mutate.ts';
import { syncStateTables } from '#db/state-sync.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { type Fleet, seedFleet } from '#kit/fleet.ts';

let t: TestDatabase;
let fleet: Fleet;
let webhookId: string;
beforeAll(async () => {
  t = await testDatabase();
  fleet = await seedFleet(t.db, { tenantId: 'tnt_a', nodes: 0 });
  webhookId = newId('webhook');
  await t.db.query(
    `insert into webhooks (id, tenant_id, url, event_types, secrets) values ($1, 'tnt_a', 'https://x.test', '{*}', '[]')`,
    [webhookId],
  );
});
afterAll(() => t?.close());

/** A fresh row of each machine, in its initial state. A machine that is not here fails its tests. */
const MAKE: Readonly<Record<string, (db: Sql, state?: string) => Promise<string>>> = {
  async node(db, state) {
    const id = newId('node');
    await db.query(
      `insert into nodes (id, tenant_id, site_id, pool_id, name, state) values ($1, 'tnt_a', $2, $3, $1, $4)`,
      [id, fleet.siteId, fleet.poolId, state ?? 'adopting'],
    );
    return id;
  },
  async reservation(db, state) {
    const id = newId('reservation');
    await db.query(
      `insert into reservations (id, tenant_id, identity_id, idempotency_key, fingerprint, pool_id, devices, duration_seconds, context, state)
       values ($1, 'tnt_a', 'idn_a', $1, '', $2, '[]', 60, '{}', $3)`,
      [id, fleet.poolId, state ?? 'draft'],
    );
    return id;
  },
  async delivery(db, state) {
    const id = newId('delivery');
    await db.query(
      `insert into webhook_deliveries (id, webhook_id, tenant_id, event_id, state) values ($1, $2, 'tnt_a', $1, $3)`,
      [id, webhookId, state ?? 'pending'],
    );
    return id;
  },
};

/** The shortest row of events that leads from the initial state to each state. */
function roads(table: StateTable): Map<string, string[]> {
  const found = new Map<string, string[]>([[table.initial, []]]);
  for (const [state, road] of found) {
    for (const move of table.moves) {
      if (move.from.includes(state) && !found.has(move.to)) found.set(move.to, [...road, move.on]);
    }
  }
  return found;
}

interface Found extends Record<string, unknown> {
  state: string;
  state_version: number;
  state_reason: string | null;
  history: number;
}

const refused = (sqlstate: string, more: object = {}) => expect.objectContaining({ sqlstate, ...more });

describe.each(STATE_TABLES.map((table) => [table.name, table] as const))('%s', (name, table) => {
  const states = Object.keys(table.states);
  const events = [...new Set(table.moves.map((m) => m.on))];
  const look = async (id: string) => {
    const [row] = await t.db.query<Found>(
      `select state, state_version, state_reason,
         (select count(*) from state_history h where h.machine = $2 and h.subject_id = m.id) as history
       from ${table.table} m where id = $1`,
      [id, name],
    );
    return row!;
  };
  const move = (id: string, event: string, version?: number) =>
    t.db.query<{ from_state: string; to_state: string; version: number }>(
      `select from_state, to_state, version from transition_${name}($1, $2, 'test', 'because', $3)`,
      [id, event, version ?? null],
    );
  const inState = async (state: string) => {
    const id = await MAKE[name]!(t.db);
    for (const event of roads(table).get(state)!) await move(id, event);
    expect((await look(id)).state).toBe(state);
    return id;
  };

  test('every state can be reached, and the database has the moves of the table and no others', async () => {
    expect([...roads(table).keys()].sort()).toEqual([...states].sort());
    const rows = await t.db.query<{ m: string }>(
      `select event || ': ' || from_state || ' -> ' || to_state as m from state_moves where machine = $1 order by 1`,
      [name],
    );
    const wanted = table.moves.flatMap((m) => m.from.map((from) => `${m.on}: ${from} -> ${m.to}`));
    expect(rows.map((r) => r.m).sort()).toEqual(wanted.sort());
  });

  test.each(states.flatMap((state) => events.map((event) => [state, event] as const)))(
    'in %s, %s',
    async (state, event) => {
      const id = await inState(state);
      const before = await look(id);
      const to = next(table, state, event);
      if (to === undefined) {
        await expect(move(id, event)).rejects.toEqual(refused('BC002', { detail: state, hint: event }));
        expect(await look(id)).toEqual(before);
        return;
      }
      await expect(move(id, event, before.state_version + 1)).rejects.toEqual(refused('BC004'));
      expect(await look(id)).toEqual(before);
      const version = before.state_version + 1;
      expect(await move(id, event, before.state_version)).toEqual([{ from_state: state, to_state: to, version }]);
      expect(await look(id)).toEqual({
        state: to,
        state_version: version,
        state_reason: 'because',
        history: before.history + 1,
      });
      const [last] = await t.db.query(
        `select event, from_state, to_state, version, actor, reason from state_history
         where subject_id = $1 order by seq desc limit 1`,
        [id],
      );
      expect(last).toEqual({
        event,
        from_state: state,
        to_state: to,
        version,
        actor: 'test',
        reason: 'because',
      });
    },
  );

  test.each(states)('from %s no other state can be written past the transition', async (state) => {
    const id = await inState(state);
    const before = await look(id);
    for (const to of [...states.filter((s) => s !== state), 'made-up']) {
      const written = t.db.query(`update ${table.table} set state = $2 where id = $1`, [id, to]);
      await expect(written).rejects.toEqual(refused('BC002'));
      // Nor under the permission of another row, of another state, or of another machine.
      for (const permit of [`${name}:other:${to}`, `${name}:${id}:${state}`, `other:${id}:${to}`]) {
        const permitted = t.db.transaction(async (tx) => {
          await tx.query(`select set_config('bc.transition', $1, true)`, [permit]);
          await tx.query(`update ${table.table} set state = $2 where id = $1`, [id, to]);
        });
        await expect(permitted).rejects.toEqual(refused('BC002'));
      }
    }
    expect(await look(id)).toEqual(before);
  });

  test('the permission of a transition ends with it', async () => {
    const [first] = table.moves;
    const id = await inState(first!.from[0]!);
    const elsewhere = states.find((s) => s !== first!.to)!;
    const written = t.db.transaction(async (tx) => {
      await tx.query(`select transition_${name}($1, $2, 'test')`, [id, first!.on]);
      await tx.query(`update ${table.table} set state = $2 where id = $1`, [id, elsewhere]);
    });
    await expect(written).rejects.toEqual(refused('BC002'));
  });

  test('a row begins in the initial state, a state outside the table does not exist', async () => {
    for (const state of states.filter((s) => s !== table.initial)) {
      await expect(MAKE[name]!(t.db, state)).rejects.toEqual(refused('BC002'));
    }
    const id = await inState(table.initial);
    const madeUp = t.db.transaction(async (tx) => {
      await tx.query(`select set_config('bc.transition', $1, true)`, [`${name}:${id}:made-up`]);
      await tx.query(`update ${table.table} set state = 'made-up' where id = $1`, [id]);
    });
    await expect(madeUp).rejects.toEqual(refused('23514', { constraint: `${table.table}_state` }));
  });

  test('of two who saw the same version one moves; a row that is not there, and an event that is none, are told', async () => {
    const [first] = table.moves;
    const id = await inState(first!.from[0]!);
    const { state_version: version } = await look(id);
    const both = await Promise.allSettled([move(id, first!.on, version), move(id, first!.on, version)]);
    expect(both.map((b) => b.status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(both.find((b) => b.status === 'rejected')).toMatchObject({ reason: { sqlstate: 'BC004' } });
    await expect(move('nobody', first!.on)).rejects.toEqual(refused('BC003'));
    await expect(move(id, 'no-such-event')).rejects.toEqual(refused('BC002'));
  });

  test('the caller is told by typed errors', async () => {
    const [first] = table.moves;
    const id = await inState(first!.from[0]!);
    const via = (event: string, version?: number, row: string = id) =>
      mutate({ db: t.db, actor: 'test', admission: {} }, (tx) => tx.transition(table, row, event, undefined, version));
    await expect(via(first!.on, 99)).rejects.toMatchObject({ code: 'VERSION_CONFLICT' });
    await expect(via(first!.on, undefined, 'nobody')).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(via('no-such-event')).rejects.toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      details: { from: first!.from[0], event: 'no-such-event', allowed: allowedEvents(table, first!.from[0]!) },
    });
    expect(await via(first!.on)).toMatchObject({ from: first!.from[0], to: first!.to, version: 2 });
  });
});

test('writing the tables into the database again changes nothing', async () => {
  const rows = () => t.db.query('select * from state_moves order by machine, event, from_state');
  const before = await rows();
  await t.db.transaction((tx) => syncStateTables(tx, STATE_TABLES));
  expect(await rows()).toEqual(before);
});
