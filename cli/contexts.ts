/** Where the CLI keeps the deployments it knows: one file, 0600, holding URL and token of each context. */
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { problem } from '#core/kernel/errors.ts';

export interface Context {
  readonly url: string;
  readonly token: string;
}

interface ContextFile {
  current?: string;
  contexts: Record<string, Context>;
}

/** `BETTER_COMPUTE_CONFIG`, else `better-compute/contexts.json` in the user's configuration folder. */
export function contextsPath(env: NodeJS.ProcessEnv = process.env): string {
  const base = env['XDG_CONFIG_HOME'] ?? join(homedir(), '.config');
  return env['BETTER_COMPUTE_CONFIG'] ?? join(base, 'better-compute', 'contexts.json');
}

export function readContexts(path = contextsPath()): ContextFile {
  if (!existsSync(path)) return { contexts: {} };
  return JSON.parse(readFileSync(path, 'utf8')) as ContextFile;
}

function writeContexts(file: ContextFile, path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileSync(`${path}.new`, `${JSON.stringify(file, null, 2)}\n`, { mode: 0o600 });
  chmodSync(`${path}.new`, 0o600);
  renameSync(`${path}.new`, path);
}

/** Stores a context and makes it the current one. */
export function saveContext(name: string, context: Context, path = contextsPath()): void {
  const file = readContexts(path);
  file.contexts[name] = context;
  file.current = name;
  writeContexts(file, path);
}

export function useContext(name: string, path = contextsPath()): void {
  const file = readContexts(path);
  if (file.contexts[name] === undefined) {
    throw problem(
      'NOT_FOUND',
      `there is no context "${name}"; known: ${Object.keys(file.contexts).join(', ') || 'none'}`,
    );
  }
  file.current = name;
  writeContexts(file, path);
}

export function forgetContext(name: string, path = contextsPath()): void {
  const file = readContexts(path);
  delete file.contexts[name];
  if (file.current === name) delete file.current;
  writeContexts(file, path);
}

/** Flags, then environment (`BETTER_COMPUTE_URL`, `BETTER_COMPUTE_TOKEN`), then the named or current context. */
export function resolveContext(flags: { url?: string; token?: string; context?: string }, env = process.env): Context {
  const file = readContexts();
  const named = flags.context ?? file.current;
  if (flags.context !== undefined && file.contexts[flags.context] === undefined) {
    throw problem(
      'NOT_FOUND',
      `there is no context "${flags.context}"; known: ${Object.keys(file.contexts).join(', ') || 'none'}`,
    );
  }
  const stored = named === undefined ? undefined : file.contexts[named];
  // An empty variable is one that is not set.
  const url = flags.url ?? (env['BETTER_COMPUTE_URL'] || stored?.url);
  const token = flags.token ?? (env['BETTER_COMPUTE_TOKEN'] || stored?.token);
  if (url === undefined || token === undefined) {
    throw problem(
      'UNAUTHENTICATED',
      'no deployment to talk to: run "better-compute login --url URL --token TOKEN", or set BETTER_COMPUTE_URL and BETTER_COMPUTE_TOKEN',
    );
  }
  if (!URL.canParse(url)) {
    throw problem('INVALID_REQUEST', `"${url}" is not a URL`, {
      errors: [{ field: 'url', message: 'expected something like https://compute.example.com' }],
    });
  }
  return { url: url.replace(/\/+$/, ''), token };
}
