/**
 * A state column has one writer, the generated SQL function transition_<machine>(): it compares, sets, and
 * writes the history row. Any other UPDATE of `state` would leave a change without its history.
 */
import type { Finding, Gate } from '../gate.ts';
import { parse, sqlStringsOf, withoutComments } from '../sql-text.ts';
import { filesOf, isCode, isTest, lineAt, textOf } from '../tree.ts';

/** `db/state-sync.ts` writes the writers; the daemon's journal is another database, whose rows no state table rules. */
const EXEMPT = /^(?:db\/state-sync\.ts$|bcd\/|tools\/check\/)/;

/** Offsets at which a SET clause assigns `state`. Only assignments outside parentheses count, or a column list. */
function assignments(sql: string): number[] {
  const found: number[] = [];
  for (const m of sql.matchAll(/\bset\b/gi)) {
    let depth = 0;
    let fresh = true;
    for (let i = m.index + 3; i < sql.length; i += 1) {
      const rest = sql.slice(i, i + 32);
      if (depth === 0 && /^(?:;|\bwhere\b|\bfrom\b|\breturning\b|\$\w*\$)/i.test(rest) && !/\w/.test(sql[i - 1]!))
        break;
      const ch = sql[i]!;
      if (fresh && /^\(\s*[\w",\s]*\bstate\b[\w",\s]*\)\s*=/i.test(sql.slice(i, i + 400))) found.push(i);
      if (fresh && depth === 0 && /^"?state"?\s*=/i.test(rest)) found.push(i);
      if (ch === '(') depth += 1;
      else if (ch === ')') depth -= 1;
      if (depth < 0) break;
      if (!/\s/.test(ch)) fresh = ch === ',' && depth === 0;
    }
  }
  return found;
}

function judge(path: string, text: string): Finding[] {
  const parts = path.endsWith('.sql') ? [{ start: 0, text: withoutComments(text) }] : sqlStringsOf(parse(path, text));
  return parts.flatMap(({ start, text: sql }) => {
    return assignments(sql).map((at) => ({
      file: path,
      line: lineAt(text, start + at),
      what: 'SQL writes a state column past its transition function',
      mend: 'call transition_<machine>(): it refuses an illegal move and writes the history row',
    }));
  });
}

export const stateColumns: Gate = {
  name: 'state-columns',
  why: 'A state that changed without its transition function has no history, and nobody can explain it at three in the morning.',
  async run(root) {
    return filesOf(root)
      .filter((f) => (f.endsWith('.sql') || isCode(f)) && !isTest(f) && !EXEMPT.test(f))
      .map((f) => [f, textOf(root, f)] as const)
      .filter(([, text]) => /\bset\b/i.test(text) && /\bstate\b/.test(text))
      .flatMap(([f, text]) => judge(f, text));
  },
};
