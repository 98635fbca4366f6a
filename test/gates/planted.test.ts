/** Each gate is shown a copy of the tree with one violation planted, and must name its file and the way out. */
import { execFile, execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GATES } from '#tools/check/table.ts';
import { filesOf } from '#tools/check/tree.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const MINUTES = 60_000;

interface Plant {
  readonly gate: string;
  readonly title: string;
  readonly file: string;
  /** The file's text with the violation in it; '' stands for a file that is not there. */
  readonly plant: (text: string) => string;
  /** Where the gate must point, if not at the file itself. */
  readonly points?: string;
  readonly says: RegExp;
}

const append = (line: string) => (text: string) => `${text}\n${line}\n`;
const swap = (from: string, to: string) => (text: string) => {
  if (!text.includes(from)) throw new Error(`nothing to plant on: ${from}`);
  return text.replace(from, to);
};

const PLANTS: readonly Plant[] = [
  {
    gate: 'import-rule',
    title: 'a pure layer imports a service',
    file: 'core/usage/windows.ts',
    plant: (text) => `import '#services/usage/index.ts';\n${text}`,
    says: /core/,
  },
  {
    gate: 'import-rule',
    title: 'a portable layer imports a module of Node',
    file: 'services/usage/index.ts',
    plant: (text) => `import 'node:fs';\n${text}`,
    says: /node:fs|fs/,
  },
  {
    gate: 'bare-time',
    title: 'a service asks the machine for the time',
    file: 'services/usage/index.ts',
    plant: append('export const late = () => Date.now();'),
    says: /Date\.now/,
  },
  {
    gate: 'bare-time',
    title: 'SQL asks the server for the time',
    file: 'services/usage/index.ts',
    plant: append("export const SQL_TIME = 'select now()';"),
    says: /now\(\)/,
  },
  {
    gate: 'state-columns',
    title: 'a statement writes a state by itself',
    file: 'services/usage/index.ts',
    plant: append(`export const SQL_STATE = "update reservations set state = 'released' where id = $1";`),
    says: /transition/,
  },
  {
    gate: 'constraints',
    title: 'a constraint that no error stands for',
    file: 'migrations/9999_planted.sql',
    plant: () => 'alter table sites add constraint sites_planted check (name <> $$planted$$);\n',
    points: 'db/constraints.ts',
    says: /sites_planted/,
  },
  {
    gate: 'constraints',
    title: 'an SQLSTATE that no error stands for',
    file: 'migrations/9999_planted.sql',
    plant: () =>
      "create function planted() returns void language plpgsql as $$ begin raise exception 'x' using errcode = 'BC099'; end $$;\n",
    says: /BC099/,
  },
  {
    gate: 'operations',
    title: 'an operation without a handler',
    file: 'workers/api/handlers.ts',
    plant: swap('  ...sites,\n', ''),
    says: /sites\.create has no handler/,
  },
  {
    gate: 'operations',
    title: 'an operation without a route',
    file: 'workers/api/app.ts',
    plant: swap(
      'for (const operation of operations) {',
      "for (const operation of operations.filter((o) => o.name !== 'sites.get')) {",
    ),
    says: /sites\.get has no route/,
  },
  {
    gate: 'operations',
    title: 'an operation without a command',
    file: 'cli/commands/operations.ts',
    plant: swap(
      '    const path = commandPath(name);',
      "    if (name === 'sites.get') continue;\n    const path = commandPath(name);",
    ),
    says: /sites\.get has no command/,
  },
  {
    gate: 'operations',
    title: 'an operation that is not in the reference',
    file: 'docs/reference/operations.md',
    plant: swap('### sites.get', '### sites.gone'),
    says: /sites\.get is not in the reference/,
  },
  {
    gate: 'operations',
    title: 'an operation that nobody without rights tries',
    file: 'test/kit/requests.ts',
    plant: swap("  'sites.get': ", "  // 'sites.get': "),
    says: /sites\.get is not tried/,
  },
  {
    gate: 'generated',
    title: 'a reference that the tables do not say',
    file: 'core/sites/contract.ts',
    plant: swap("help: 'Show a site'", "help: 'Show a planted site'"),
    points: 'docs/reference/operations.md',
    says: /npm run gen/,
  },
  {
    gate: 'generated',
    title: 'a message that breaks the rules of the protocol',
    file: 'proto/bettercompute/v1/planted.proto',
    plant: () => 'syntax = "proto3";\npackage bettercompute.v1;\nmessage planted_message { string Bad = 1; }\n',
    says: /planted_message|PascalCase|buf lint/i,
  },
  {
    gate: 'docs',
    title: 'a page with a link to nowhere',
    file: 'README.md',
    plant: append('[more](docs/planted.md)'),
    says: /docs\/planted\.md/,
  },
  {
    gate: 'docs',
    title: 'a page with a command that is not there',
    file: 'README.md',
    plant: append('```sh\nbetter-compute planets list\n```'),
    says: /planets/,
  },
  {
    gate: 'worker-size',
    title: 'a Worker that does not build',
    file: 'workers/index.ts',
    plant: append("import './planted.ts';"),
    points: 'wrangler.toml',
    says: /planted/,
  },
  {
    gate: 'types',
    title: 'a value of the wrong type',
    file: 'core/usage/windows.ts',
    plant: append('export const wrong: number = String(1);'),
    says: /TS2322/,
  },
  {
    gate: 'format-and-lint',
    title: 'a file that is formatted by hand',
    file: 'core/usage/windows.ts',
    plant: append('export const  spaced = "x"'),
    says: /biome/,
  },
  {
    gate: 'files',
    title: 'a file that nobody can hold in the head',
    file: 'core/usage/windows.ts',
    plant: append(Array.from({ length: 600 }, (_, i) => `// ${i}`).join('\n')),
    says: /lines/,
  },
];

let tree: string;

beforeAll(() => {
  tree = mkdtempSync(join(tmpdir(), 'better-compute-planted-'));
  for (const file of filesOf(ROOT)) cpSync(join(ROOT, file), join(tree, file));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  execFileSync('git', ['init', '-q'], { cwd: tree });
});
afterAll(() => rmSync(tree, { recursive: true, force: true }));

function check(...only: string[]): Promise<{ code: number; output: string }> {
  const args = ['--disable-warning=ExperimentalWarning', join(ROOT, 'tools/check/main.ts'), '--root', tree];
  return new Promise((done) => {
    execFile(
      process.execPath,
      [...args, ...(only.length === 0 ? [] : ['--only', only.join(',')])],
      { maxBuffer: 16 * 1024 * 1024 },
      (e, stdout, stderr) => done({ code: e === null ? 0 : Number(e.code), output: stdout + stderr }),
    );
  });
}

test(
  'a clean copy passes every gate',
  async () => {
    const { code, output } = await check();
    expect(code, output).toBe(0);
  },
  5 * MINUTES,
);

test('every gate has a violation of its own', () => {
  expect([...new Set(PLANTS.map((p) => p.gate))].sort()).toEqual(GATES.map((g) => g.name).sort());
});

describe.each(PLANTS)('$gate', ({ gate, title, file, plant, points, says }) => {
  test(title, { timeout: 3 * MINUTES }, async () => {
    const at = join(tree, file);
    const before = ((): string | undefined => {
      try {
        return readFileSync(at, 'utf8');
      } catch {
        return undefined;
      }
    })();
    mkdirSync(dirname(at), { recursive: true });
    writeFileSync(at, plant(before ?? ''));
    try {
      const { code, output } = await check(gate);
      expect(code, output).toBe(1);
      expect(output).toContain(`  ${points ?? file}`);
      expect(output).toMatch(says);
      expect(output).toContain('→ ');
    } finally {
      if (before === undefined) rmSync(at);
      else writeFileSync(at, before);
    }
  });
});
