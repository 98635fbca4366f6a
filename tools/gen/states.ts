/** docs/reference/states.md */
import type { StateSpec, StateTable } from '#core/kernel/state-table.ts';
import { STATE_TABLES } from '#core/states.ts';
import { code, fenced, page, table } from './markdown.ts';

/** Mermaid takes no hyphen in an id of a state. */
const id = (state: string) => state.replaceAll('-', '_');

export function diagram(t: StateTable): string {
  const lines = [
    'stateDiagram-v2',
    ...Object.keys(t.states)
      .filter((s) => id(s) !== s)
      .map((s) => `  state "${s}" as ${id(s)}`),
    `  [*] --> ${id(t.initial)}`,
    ...t.moves.flatMap((m) => m.from.map((from) => `  ${id(from)} --> ${id(m.to)}: ${m.on}`)),
    ...Object.entries(t.states)
      .filter(([, s]) => s.final === true)
      .map(([name]) => `  ${id(name)} --> [*]`),
  ];
  return fenced('mermaid', lines.join('\n'));
}

function rest(s: StateSpec): string {
  if (s.final === true) return 'for ever';
  if (s.settled === true) return 'until somebody moves it';
  const deadline = s.deadlineSeconds === undefined ? '' : `; stuck after ${s.deadlineSeconds} s`;
  return `${s.owner ?? ''} leads out${deadline}`;
}

function section(t: StateTable): string {
  return [
    `## ${t.name}`,
    `Table ${code(t.table)}; written by ${code(`transition_${t.name}()`)} alone.`,
    diagram(t),
    table(
      ['State', 'Meaning', 'Stays'],
      Object.entries(t.states).map(([name, s]) => [code(name), s.doc, rest(s)]),
    ),
    table(
      ['Event', 'From', 'To', 'By', 'When'],
      t.moves.map((m) => [code(m.on), m.from.map(code).join(', '), code(m.to), m.by.join(', '), m.doc]),
    ),
  ].join('\n\n');
}

export function statesPage(): string {
  return page(
    'States',
    'Each machine is one table in the code. The database refuses every other move, whoever asks.',
    ...STATE_TABLES.map(section),
  );
}
