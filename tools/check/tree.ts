/** Which files a gate looks at. In a git checkout: tracked files and new ones that git does not ignore; else a walk. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const NEVER = new Set(['node_modules', '.git', '.dev', 'dist', '.wrangler', 'coverage']);

/** The layers that run in somebody's production; time and state rules hold there. */
export const SHIPPED = [
  'core',
  'db',
  'proto',
  'services',
  'plugins',
  'reconcilers',
  'workers',
  'gateway',
  'bcd',
  'sdk',
  'cli',
  'console',
];

function walk(root: string, under: string, found: string[]): void {
  for (const entry of readdirSync(join(root, under), { withFileTypes: true })) {
    const path = under === '' ? entry.name : `${under}/${entry.name}`;
    if (entry.isDirectory()) {
      if (!NEVER.has(entry.name)) walk(root, path, found);
    } else if (entry.isFile()) found.push(path);
  }
}

/** Undefined where git cannot say: no checkout, or one of somebody else, which git does not trust. */
function known(root: string): string[] | undefined {
  if (!existsSync(join(root, '.git'))) return undefined;
  try {
    const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    // Listed but gone: deleted in the working tree and not committed yet.
    return list.split('\0').filter((path) => path !== '' && existsSync(join(root, path)));
  } catch {
    return undefined;
  }
}

/** Paths relative to the root, sorted. */
export function filesOf(root: string): string[] {
  const found = known(root) ?? [];
  if (found.length === 0) walk(root, '', found);
  return [...new Set(found)].sort();
}

export const textOf = (root: string, path: string) => readFileSync(join(root, path), 'utf8');

export const isTest = (path: string) => path.startsWith('test/') || /\.test\.[cm]?[jt]s$/.test(path);

export const isGenerated = (path: string) =>
  path === 'package-lock.json' ||
  path.startsWith('proto/gen/') ||
  path.startsWith('docs/reference/') ||
  /(^|\/)generated\//.test(path);

export const isCode = (path: string) => /\.[cm]?[jt]sx?$/.test(path) && !path.endsWith('.d.ts');

export const isShipped = (path: string) =>
  SHIPPED.includes(path.split('/', 1)[0]!) && !isTest(path) && !isGenerated(path);

/** 1 for the first line. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let i = text.indexOf('\n'); i !== -1 && i < offset; i = text.indexOf('\n', i + 1)) line += 1;
  return line;
}
