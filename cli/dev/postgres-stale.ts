/**
 * A server that an earlier run left in the data folder: usually one that is just about to stop, since its own run was
 * killed a moment ago. It is given time, then asked, then told. A pid file whose process is something else by now
 * (pids are used again) is deleted, or the new server would refuse to start.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '#core/kernel/time.ts';

const STEPS: readonly (readonly [signal: NodeJS.Signals | undefined, seconds: number])[] = [
  [undefined, 3],
  ['SIGINT', 15],
  ['SIGQUIT', 5],
  ['SIGKILL', 5],
];

export async function stopStaleServer(dataDir: string): Promise<void> {
  const file = join(dataDir, 'postmaster.pid');
  if (!existsSync(file)) return;
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0]);
  if (!Number.isInteger(pid) || pid <= 1) return rmSync(file, { force: true });
  for (const [signal, seconds] of STEPS) {
    if (!serves(pid, dataDir)) break;
    if (signal !== undefined) process.kill(pid, signal);
    for (let tenth = 0; tenth < seconds * 10 && serves(pid, dataDir); tenth++) await systemClock.sleep(100);
  }
  if (serves(pid, dataDir)) throw new Error(`a Postgres server (pid ${pid}) holds ${dataDir} and does not stop`);
  rmSync(file, { force: true });
}

function serves(pid: number, dataDir: string): boolean {
  try {
    return commandLine(pid).includes(dataDir);
  } catch {
    return false;
  }
}

function commandLine(pid: number): string {
  if (existsSync('/proc/self/cmdline')) return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  return execFileSync('ps', ['-o', 'command=', '-p', String(pid)], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}
