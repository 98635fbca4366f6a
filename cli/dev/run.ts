/** `better-compute dev`: starts everything, says where it is, and stops it on Ctrl-C. */

import { relative } from 'node:path';
import { problem } from '#core/kernel/errors.ts';
import { launcherGone } from './launcher.ts';
import { writeShell } from './shell.ts';
import { startAll } from './up.ts';

export interface DevFlags {
  readonly sim: number;
  readonly stateDir: string;
  readonly port?: number;
}

const SIM_MAX = 1_000;

export async function runDev(flags: DevFlags): Promise<void> {
  whole('sim', flags.sim, 0, SIM_MAX);
  if (flags.port !== undefined) whole('port', flags.port, 1, 65_535);
  const running = await startAll({
    stateDir: flags.stateDir,
    sim: flags.sim,
    ...(flags.port === undefined ? {} : { ports: { api: flags.port } }),
    log: (name, line) => process.stderr.write(`${name.padEnd(9)} | ${line}\n`),
  });
  const ended = new AbortController();
  const stopped = new Promise<void>((resolve) => {
    const stop = () => void running.stop().then(resolve);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, stop);
    launcherGone(ended.signal).then(stop, () => {});
  });
  const env = writeShell(running);
  const near = relative(process.cwd(), env);
  console.log(
    [
      `ready     ${running.apiUrl}`,
      `reference ${running.apiUrl}/v1/docs`,
      `gateway   127.0.0.1:${running.ports.gateway} (machines join at 127.0.0.1:${running.ports.join})`,
      `database  ${running.databaseUrl}`,
      `token     ${running.operatorToken} (operator; also in ${running.stateDir}/operator-token)`,
      `tenant    ${running.tenantId}`,
      `shell     . ${near.startsWith('..') ? env : near}   then for example: better-compute pools list`,
    ].join('\n'),
  );
  await stopped;
  ended.abort();
}

function whole(field: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  const message = `must be a whole number from ${min} to ${max}`;
  throw problem('INVALID_REQUEST', `--${field} ${message}`, { errors: [{ field: `--${field}`, message }] });
}
