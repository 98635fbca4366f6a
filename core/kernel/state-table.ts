/**
 * State machines as data. One table says which states exist, which are final, who owns the way out of the others and
 * which moves are legal. From it come: the SQL CHECK and the trigger that refuses any other move, the legal verbs of
 * the API, the diagram in docs/reference/states.md, and the test that tries every pair.
 * The only writer of a state column is the SQL function `transition_<name>()`, which db/state-sync.ts makes from the table.
 */
export interface StateSpec {
  readonly doc: string;
  /** Nothing happens any more by itself: the object may stay here for ever. */
  readonly settled?: boolean;
  /** No move leads out. */
  readonly final?: boolean;
  /** For a state that is not settled: the reconciler or verb that must lead out of it. */
  readonly owner?: string;
  /** For a state that is not settled: after so many seconds `explain` and the alarms call it stuck. */
  readonly deadlineSeconds?: number;
}

export interface Move<S extends string, E extends string> {
  readonly on: E;
  readonly from: readonly S[];
  readonly to: S;
  /** Who may make it: `api` or a reconciler's name. */
  readonly by: readonly string[];
  readonly doc: string;
}

export interface StateTable<S extends string = string, E extends string = string> {
  readonly name: string;
  /** The SQL table with columns id, state, state_version, state_changed_at. */
  readonly table: string;
  readonly initial: S;
  readonly states: Readonly<Record<S, StateSpec>>;
  readonly moves: readonly Move<S, E>[];
}

export function stateTable<S extends string, E extends string>(
  name: string,
  table: string,
  initial: NoInfer<S>,
  states: Readonly<Record<S, StateSpec>>,
  moves: readonly Move<NoInfer<S>, E>[],
): StateTable<S, E> {
  return { name, table, initial, states, moves };
}

/** Where `event` leads from `from`, or undefined when it is not legal there. */
export function next<S extends string, E extends string>(t: StateTable<S, E>, from: S, event: E): S | undefined {
  return t.moves.find((m) => m.on === event && m.from.includes(from))?.to;
}

/** The events that are legal in a state, in table order. */
export function allowedEvents<S extends string, E extends string>(t: StateTable<S, E>, from: S): E[] {
  return t.moves.filter((m) => m.from.includes(from)).map((m) => m.on);
}

export function isFinal<S extends string>(t: StateTable<S, string>, state: S): boolean {
  return t.states[state].final === true;
}
