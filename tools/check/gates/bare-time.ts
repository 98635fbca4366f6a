/**
 * No shipped file asks the machine for the time. Hosts take a Clock, SQL says compute_now(); a line that truly must
 * says `time-ok: why`, and a `time-ok` that allows nothing is itself a finding, so that they can only shrink.
 */
import ts from 'typescript';
import type { Finding, Gate } from '../gate.ts';
import { parse, sqlStringsOf, withoutComments } from '../sql-text.ts';
import { filesOf, isCode, isShipped, lineAt, textOf } from '../tree.ts';

const THE_CLOCK = 'core/kernel/time.ts';
const TIMERS = new Set(['setTimeout', 'setInterval', 'setImmediate']);
const GLOBALS = new Set(['globalThis', 'global', 'window', 'self']);
const CANDIDATE =
  /\b(Date|setTimeout|setInterval|setImmediate|performance|hrtime|timers)\b|now\s*\(|timestamp|current_|timeofday|time-ok/i;
const SQL_TIME =
  /(?<![\w.])(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\s*\(\s*\)|\b(current_timestamp|current_time|current_date|localtimestamp|localtime)\b|'now'(?=\s*::)/gi;
const ITS_OWN_DEFINITION =
  /\bcreate\s+(?:or\s+replace\s+)?function\s+(?:\w+\.)?compute_now\s*\(\s*\)[^;]*?(\$\w*\$)[\s\S]*?\1/gi;
const EXCUSE = /time-ok:[ \t]*(\S.*)?/;

const MEND_TS = 'take a Clock (core/kernel/time.ts) or `now` as an argument: leases must be testable without waiting';
const MEND_SQL =
  'say compute_now(): tests and the simulator own that clock, so that leases are testable without waiting';

interface Hit {
  readonly offset: number;
  readonly what: string;
  readonly mend: string;
}

function sqlHits(sql: string, start: number): Hit[] {
  const own = [...sql.matchAll(ITS_OWN_DEFINITION)].map((m) => [m.index, m.index + m[0].length] as const);
  return [...sql.matchAll(SQL_TIME)]
    .filter((m) => !own.some(([from, to]) => m.index >= from && m.index < to))
    .map((m) => ({ offset: start + m.index, what: `SQL asks the server's clock by ${m[0]}`, mend: MEND_SQL }));
}

function codeHits(file: ts.SourceFile): Hit[] {
  const hits: Hit[] = [];
  const hit = (node: ts.Node, what: string) => hits.push({ offset: node.getStart(file), what, mend: MEND_TS });
  const visit = (node: ts.Node, parent: ts.Node): void => {
    if (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) {
      const path = `${node.expression.text}.${node.name.text}`;
      if (path === 'Date.now' || path === 'performance.now' || path === 'process.hrtime')
        hit(node, `${path} is bare time`);
      else if (GLOBALS.has(node.expression.text) && TIMERS.has(node.name.text)) hit(node, `${path} is a bare timer`);
      return;
    }
    if (ts.isNewExpression(node) && ts.isIdentifier(node.expression) && node.expression.text === 'Date') {
      if ((node.arguments?.length ?? 0) === 0) hit(node, 'new Date() without an argument is bare time');
    } else if (ts.isCallExpression(node) && ts.isIdentifier(node.expression) && node.expression.text === 'Date') {
      hit(node, 'Date() is bare time');
    } else if (ts.isIdentifier(node) && TIMERS.has(node.text)) {
      // As a name of a member or a key it is somebody else's: socket.setTimeout, { setTimeout: … }.
      const named =
        (ts.isPropertyAccessExpression(parent) && parent.name === node) ||
        ((ts.isPropertyAssignment(parent) || ts.isMethodDeclaration(parent)) && parent.name === node) ||
        ts.isPropertySignature(parent) ||
        ts.isMethodSignature(parent) ||
        ts.isTypeQueryNode(parent);
      if (!named) hit(node, `${node.text} is a bare timer`);
      return;
    } else if (ts.isImportDeclaration(node)) {
      if (ts.isStringLiteral(node.moduleSpecifier) && /^(node:)?timers(\/promises)?$/.test(node.moduleSpecifier.text)) {
        hit(node, `${node.moduleSpecifier.text} brings bare timers`);
      }
      return;
    }
    ts.forEachChild(node, (child) => visit(child, node));
  };
  visit(file, file);
  return hits;
}

function judge(path: string, text: string): Finding[] {
  if (!CANDIDATE.test(text)) return [];
  let hits: Hit[];
  if (path.endsWith('.sql')) hits = sqlHits(withoutComments(text), 0);
  else {
    const file = parse(path, text);
    hits = [...codeHits(file), ...sqlStringsOf(file).flatMap((s) => sqlHits(s.text, s.start))];
  }
  const lines = text.split('\n');
  const excused = new Set<number>();
  const findings: Finding[] = [];
  for (const { offset, what, mend } of hits) {
    const line = lineAt(text, offset);
    const excuse = EXCUSE.exec(lines[line - 1]!);
    if (excuse === null) findings.push({ file: path, line, what, mend });
    else {
      excused.add(line);
      if ((excuse[1]?.replace(/\*\/\s*$/, '').trim().length ?? 0) < 8) {
        findings.push({
          file: path,
          line,
          what: `${what}, and its time-ok gives no reason`,
          mend: 'say why: `time-ok: reason`',
        });
      }
    }
  }
  lines.forEach((content, i) => {
    if (EXCUSE.test(content) && !excused.has(i + 1)) {
      findings.push({ file: path, line: i + 1, what: 'a time-ok that allows nothing', mend: 'remove it' });
    }
  });
  return findings;
}

export const bareTime: Gate = {
  name: 'bare-time',
  why: 'Whoever asks the machine for the time cannot be tested without waiting, and cannot run in the simulator.',
  async run(root) {
    return filesOf(root)
      .filter(
        (f) => (f.startsWith('migrations/') && f.endsWith('.sql')) || (isShipped(f) && isCode(f) && f !== THE_CLOCK),
      )
      .flatMap((f) => judge(f, textOf(root, f)));
  },
};
