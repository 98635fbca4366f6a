/** Output for people: a list as a table, an object as lines. `--json` prints what the API answered and nothing else. */
import { ERRORS, type Problem } from '#core/kernel/errors.ts';

type Value = unknown;

function cell(v: Value): string {
  if (v === undefined || v === null) return '-';
  if (Array.isArray(v)) return v.length === 0 ? '-' : v.map(cell).join(', ');
  if (typeof v === 'object') {
    return Object.entries(v as Record<string, Value>)
      .map(([k, x]) => `${k}=${cell(x)}`)
      .join(' ');
  }
  return String(v);
}

const clip = (text: string, width: number) => (text.length <= width ? text : `${text.slice(0, width - 1)}…`);

const CELL_WIDTH_MAX = 44;

/** The given columns, as far as any row has them; without any, all. */
function table(rows: readonly Record<string, Value>[], wanted: readonly string[] | undefined): string {
  const known = new Set(rows.flatMap((r) => Object.keys(r)));
  const columns = wanted?.filter((c) => known.has(c)) ?? [...known];
  const cells = [
    columns.map((c) => c.toUpperCase()),
    ...rows.map((r) => columns.map((c) => clip(cell(r[c]), CELL_WIDTH_MAX))),
  ];
  const widths = columns.map((_, i) => Math.max(...cells.map((r) => r[i]!.length)));
  return cells
    .map((r) =>
      r
        .map((c, i) => c.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function lines(object: Record<string, Value>, indent = ''): string {
  const width = Math.max(...Object.keys(object).map((k) => k.length), 0);
  return Object.entries(object)
    .map(([k, v]) => {
      const nested = Array.isArray(v) && v.some((x) => typeof x === 'object' && x !== null);
      if (nested)
        return `${indent}${k}:\n${(v as Record<string, Value>[]).map((x) => `${indent}  - ${cell(x)}`).join('\n')}`;
      return `${indent}${`${k}:`.padEnd(width + 2)}${cell(v)}`;
    })
    .join('\n');
}

/** `columns`: what a table of a list shows. */
export function render(answer: unknown, columns?: readonly string[]): string {
  if (answer === undefined || answer === null) return 'done';
  const { items, nextCursor } = answer as { items?: Record<string, Value>[]; nextCursor?: string };
  if (Array.isArray(items)) {
    const body = items.length === 0 ? 'nothing' : table(items, columns);
    return nextCursor === undefined ? body : `${body}\n(more: --cursor ${nextCursor})`;
  }
  return lines(answer as Record<string, Value>);
}

/** Cause, details, way out. */
export function renderProblem(p: Problem): string {
  const head = `${p.code}: ${p.message}`;
  const details =
    p.details === undefined
      ? []
      : Object.entries(p.details).map(([k, v]) => {
          if (!Array.isArray(v)) return `  ${k}: ${cell(v)}`;
          return `  ${k}:\n${v.map((x) => `    - ${cell(x)}`).join('\n')}`;
        });
  return [head, ...details, `  what to do: ${ERRORS[p.code].wayOut}`].join('\n');
}
