/**
 * What makes a shell speak to a local control plane: `. <stateDir>/env` puts the command on the PATH and points it at
 * two contexts, the organisation that the first start makes (current) and the operator.
 */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { saveContext } from '../contexts.ts';
import type { Running } from './up.ts';

const COMMAND = fileURLToPath(new URL('../bin.js', import.meta.url));

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The file to source. */
export function writeShell(running: Pick<Running, 'stateDir' | 'apiUrl' | 'operatorToken' | 'tenantToken'>): string {
  const { stateDir, apiUrl: url } = running;
  const contexts = join(stateDir, 'contexts.json');
  saveContext('operator', { url, token: running.operatorToken }, contexts);
  saveContext('tenant', { url, token: running.tenantToken }, contexts);
  const bin = join(stateDir, 'bin');
  mkdirSync(bin, { recursive: true });
  const link = join(bin, 'better-compute');
  rmSync(link, { force: true });
  symlinkSync(COMMAND, link);
  const env = join(stateDir, 'env');
  const lines = [
    `export BETTER_COMPUTE_CONFIG=${quoted(contexts)}`,
    'unset BETTER_COMPUTE_URL BETTER_COMPUTE_TOKEN',
    `case ":$PATH:" in *:${quoted(bin)}:*) ;; *) export PATH=${quoted(bin)}:"$PATH" ;; esac`,
  ];
  writeFileSync(env, `${lines.join('\n')}\n`, { mode: 0o600 });
  return env;
}
