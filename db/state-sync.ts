/**
 * Writes the state tables into the database: CHECK of the states, trigger of the moves, the moves themselves. Run after
 * every migration; changes nothing when nothing changed.
 */
import type { Sql } from '#core/kernel/database.ts';
import type { StateTable } from '#core/kernel/state-table.ts';

const literal = (s: string) => `'${s.replaceAll("'", "''")}'`;

/** The statements that make the database agree with one state table. */
export function stateTableSql(t: StateTable): string[] {
  const states = Object.keys(t.states).map(literal).join(', ');
  const moves = t.moves.flatMap((m) => m.from.map((from) => `(${[t.name, m.on, from, m.to].map(literal).join(', ')})`));
  return [
    `alter table ${t.table} drop constraint if exists ${t.table}_state`,
    `alter table ${t.table} add constraint ${t.table}_state check (state in (${states}))`,
    `create or replace trigger ${t.table}_state_guard before insert or update of state on ${t.table}
       for each row execute function state_guard(${literal(t.name)}, ${literal(t.initial)})`,
    `delete from state_moves where machine = ${literal(t.name)}`,
    `insert into state_moves (machine, event, from_state, to_state) values ${moves.join(', ')}`,
  ];
}

export async function syncStateTables(tx: Sql, tables: readonly StateTable[]): Promise<void> {
  for (const t of tables) for (const statement of stateTableSql(t)) await tx.query(statement);
}
