/**
 * The workerd process that Miniflare started: finding it, noticing its death (Miniflare does not say), and making sure
 * that it does not outlive us even if we are killed.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { systemClock } from '#core/kernel/time.ts';

const claimed = new Set<number>();

/** The pid of the child `workerd` that was started last and not asked for before. */
export function workerdPid(): number {
  const pid = children()
    .filter(([, command]) => command.includes('workerd'))
    .map(([p]) => p)
    .filter((p) => !claimed.has(p))
    .sort((a, b) => b - a)[0];
  if (pid === undefined) throw new Error('workerd is not running');
  claimed.add(pid);
  return pid;
}

/**
 * A shell that holds a pipe from us; when it closes, the pid is killed. `release` ends the shell without killing.
 */
export function killWithUs(pid: number): { release(): void } {
  const reaper = spawn(
    '/bin/sh',
    ['-c', 'read -r keep; [ "$keep" = gone ] || kill -KILL "$1"', 'reaper', String(pid)],
    {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    },
  );
  reaper.on('error', () => {});
  reaper.stdin.on('error', () => {});
  reaper.unref();
  return { release: () => void reaper.stdin.end('gone\n') };
}

export async function untilGone(pid: number, stopped: AbortSignal): Promise<void> {
  while (isAlive(pid)) {
    try {
      await systemClock.sleep(200, stopped);
    } catch {
      return new Promise(() => {}); // stopped on purpose: that is not a death
    }
  }
}

/** False too for one that has ended and that nobody has waited for: a container may have no one who does. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (e) {
    if ((e as { code?: string }).code !== 'EPERM') return false;
  }
  if (!existsSync('/proc/self/stat')) return true;
  const stat = procStat(pid);
  return stat !== undefined && stat.state !== 'Z';
}

/** Undefined when there is no such process, or no way to ask. */
export function parentOf(pid: number): number | undefined {
  return procStat(pid)?.parent;
}

/** State and parent of a process; undefined when there is none. */
function procStat(pid: number | string): { state: string; parent: number } | undefined {
  try {
    // pid (command) state ppid ...; the command may itself contain spaces and brackets.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: state!, parent: Number(parent) };
  } catch {
    return undefined;
  }
}

/** Children of this process: pid and command. */
function children(): [pid: number, command: string][] {
  if (!existsSync('/proc/self/stat')) {
    return execFileSync('ps', ['-A', '-o', 'pid=,ppid=,comm='], { encoding: 'utf8' })
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, parent]) => Number(parent) === process.pid)
      .map(([pid, , command]) => [Number(pid), command ?? '']);
  }
  const found: [number, string][] = [];
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    if (procStat(entry)?.parent !== process.pid) continue;
    try {
      found.push([Number(entry), readFileSync(`/proc/${entry}/cmdline`, 'utf8')]);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}
