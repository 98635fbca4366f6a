/**
 * Writes the state tables into the database: CHECK of the states, trigger that guards the column, the legal moves, and
 * the one function that writes the state. Run after every migration; changes nothing when nothing changed.
 */
import type { Sql } from '#core/kernel/database.ts';
import type { StateTable } from '#core/kernel/state-table.ts';

const literal = (s: string) => `'${s.replaceAll("'", "''")}'`;

/**
 * The one writer of a machine's state column. Generated, so that its statements are planned once and not at each call,
 * and so that the legal moves cost no look into a table.
 */
function writerSql({ name, table, moves }: StateTable): string {
  const arms = moves.flatMap((m) => m.from.map((from) => `when ${literal(`${m.on}/${from}`)} then ${literal(m.to)}`));
  return `create or replace function transition_${name}(p_id text, p_event text, p_actor text, p_reason text default null,
  p_version bigint default null, out from_state text, out to_state text, out version bigint) language plpgsql as $$
#variable_conflict use_variable
begin
  select state, state_version into from_state, version from ${table} where id = p_id for update;
  if from_state is null then
    raise exception '${name} % does not exist', p_id using errcode = 'BC003';
  end if;
  if version <> p_version then
    raise exception '${name} % changed meanwhile', p_id using errcode = 'BC004';
  end if;
  to_state := case p_event || '/' || from_state ${arms.join(' ')} end;
  if to_state is null then
    raise exception '${name} cannot % from %', p_event, from_state using errcode = 'BC002', detail = from_state, hint = p_event;
  end if;
  version := version + 1;
  perform set_config('bc.transition', ${literal(`${name}:`)} || p_id || ':' || to_state, true);
  update ${table} set state = to_state, state_version = version, state_changed_at = compute_now(), state_reason = p_reason
    where id = p_id;
  perform set_config('bc.transition', '', true);
  insert into state_history (machine, subject_id, event, from_state, to_state, version, actor, reason)
    values (${literal(name)}, p_id, p_event, from_state, to_state, version, p_actor, p_reason);
end $$`;
}

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
    writerSql(t),
  ];
}

export async function syncStateTables(tx: Sql, tables: readonly StateTable[]): Promise<void> {
  for (const t of tables) for (const statement of stateTableSql(t)) await tx.query(statement);
}
