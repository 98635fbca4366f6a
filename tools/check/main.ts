/**
 * `npm run check`: runs the gates and prints one line for each, then what they found.
 * `--only a,b` runs some, `--root DIR` looks at another tree (the tests plant violations in a copy), `--list` names them.
 */
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { Finding, Gate } from './gate.ts';
import { GATES } from './table.ts';

const { values } = parseArgs({
  options: { only: { type: 'string' }, root: { type: 'string' }, list: { type: 'boolean' } },
});
const root = resolve(values.root ?? resolve(import.meta.dirname, '../..'));

if (values.list === true) {
  for (const gate of GATES) console.log(`${gate.name.padEnd(16)} ${gate.why}`);
  process.exit(0);
}

const names = values.only?.split(',').filter((n) => n !== '');
const unknown = names?.filter((n) => !GATES.some((g) => g.name === n)) ?? [];
if (unknown.length > 0) {
  console.error(`no gate is called ${unknown.join(', ')}; there are: ${GATES.map((g) => g.name).join(', ')}`);
  process.exit(2);
}

interface Verdict {
  readonly findings: readonly Finding[];
  readonly facts: readonly string[];
  readonly seconds: number;
}

async function judge(gate: Gate): Promise<Verdict> {
  const started = performance.now();
  const facts: string[] = [];
  let findings: readonly Finding[];
  try {
    findings = await gate.run(root, (fact) => facts.push(fact));
  } catch (error) {
    const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
    findings = [
      { file: `tools/check/gates/${gate.name}.ts`, what: `the gate itself broke: ${what}`, mend: 'repair it' },
    ];
  }
  return { findings, facts, seconds: (performance.now() - started) / 1000 };
}

const chosen = GATES.filter((g) => names?.includes(g.name) ?? true);
const waiting = [...chosen];
const verdicts = new Map<Gate, Verdict>();
let printed = 0;

function print(gate: Gate, { findings, facts, seconds }: Verdict): void {
  const verdict = findings.length === 0 ? 'ok' : `${findings.length} found`;
  const beside = facts.length === 0 ? '' : `  ${facts.join(', ')}`;
  console.log(`${gate.name.padEnd(16)} ${verdict.padEnd(10)} ${seconds.toFixed(1).padStart(5)} s${beside}`);
  if (findings.length === 0) return;
  console.log(`  why: ${gate.why}`);
  for (const f of findings) {
    console.log(`  ${f.file}${f.line === undefined ? '' : `:${f.line}`}\n    ${f.what}\n    → ${f.mend}`);
  }
}

async function worker(): Promise<void> {
  for (let gate = waiting.shift(); gate !== undefined; gate = waiting.shift()) {
    verdicts.set(gate, await judge(gate));
    // In the order of the table, each as soon as it and those before it are done.
    for (let next = chosen[printed]; next !== undefined && verdicts.has(next); next = chosen[printed]) {
      print(next, verdicts.get(next)!);
      printed += 1;
    }
  }
}
await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, worker));

const failed = chosen.filter((g) => verdicts.get(g)!.findings.length > 0);
if (failed.length > 0) {
  console.error(
    `\nfailed: ${failed.map((g) => g.name).join(', ')} (again by \`npm run check -- --only ${failed.map((g) => g.name).join(',')}\`)`,
  );
  process.exit(1);
}
