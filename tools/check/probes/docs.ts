/** What the pages say against what there is: links, scripts of npm, commands. Pages are those that git knows. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Command } from 'commander';
import { program as bcdProgram } from '#bcd/main.ts';
import { buildProgram } from '#cli/program.ts';
import { anchor } from '#tools/gen/markdown.ts';
import type { Finding } from '../gate.ts';
import { filesOf, isGenerated, lineAt, textOf } from '../tree.ts';

const root = process.cwd();
const pages = filesOf(root).filter((f) => f.endsWith('.md') && !f.startsWith('test/'));
const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
const programs: Readonly<Record<string, Command>> = { 'better-compute': buildProgram(), bcd: bcdProgram() };
const findings: Finding[] = [];

const headings = (text: string) => new Set([...text.matchAll(/^#+ (.+)$/gm)].map((m) => anchor(m[1]!)));

function links(file: string, text: string): void {
  for (const m of text.matchAll(/\]\(([^)\s]+)\)/g)) {
    const [path, fragment] = m[1]!.split('#') as [string, string | undefined];
    if (/^[a-z]+:/.test(path)) continue;
    const target = path === '' ? file : join(dirname(file), path);
    const line = lineAt(text, m.index);
    if (!existsSync(join(root, target)))
      findings.push({ file, line, what: `the link leads to ${target}, which is not there`, mend: 'correct the link' });
    else if (fragment !== undefined && target.endsWith('.md') && !headings(textOf(root, target)).has(fragment))
      findings.push({ file, line, what: `${target} has no heading #${fragment}`, mend: 'correct the link' });
  }
}

function commands(file: string, text: string): void {
  for (const m of text.matchAll(/\bnpm run ([a-z][a-z0-9:]*)/g)) {
    if (Object.hasOwn(scripts, m[1]!)) continue;
    findings.push({
      file,
      line: lineAt(text, m.index),
      what: `there is no script ${m[1]}`,
      mend: 'name one that exists',
    });
  }
  // In code only: prose speaks of the product by the same name.
  for (const block of text.matchAll(/```sh\n([\s\S]*?)```|`([^`\n]+)`/g)) {
    const shell = block[1] ?? block[2]!;
    for (const m of shell.matchAll(/(?:^|\$\(|[|&] *|^[A-Z_]+=\S* )(better-compute|bcd) ([^\n|;)`#]*)/gm)) {
      const words = m[2]!
        .trim()
        .split(/\s+/)
        .filter((w) => w !== '');
      const unknown = unknownCommand(programs[m[1]!]!, words);
      if (unknown === undefined) continue;
      const line = lineAt(text, block.index + (block[0].indexOf(m[0]) + 1));
      findings.push({ file, line, what: `${m[1]} knows no ${unknown}`, mend: 'name a command and options that exist' });
    }
  }
}

/** The first word that the program does not know, of a line such as `--json reservations list --limit 3`. */
function unknownCommand(program: Command, words: readonly string[]): string | undefined {
  let at = program;
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (word === '…' || word.startsWith('…')) return undefined;
    if (word.startsWith('--')) {
      if (word === '--help' || word === '--version') continue;
      const option = [...at.options, ...program.options].find((o) => o.long === word);
      if (option === undefined) return `${at.name()} ${word}`;
      if (option.required) i += 1;
      continue;
    }
    const next = at.commands.find((c) => c.name() === word);
    if (next !== undefined) at = next;
    else if (at.commands.length > 0) return word;
  }
  return undefined;
}

for (const file of pages) {
  const text = textOf(root, file);
  links(file, text);
  if (!isGenerated(file)) commands(file, text);
}
console.log(JSON.stringify(findings));
