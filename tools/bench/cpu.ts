/** CPU time of processes, from /proc: user and system, in seconds. */
import { readdirSync, readFileSync } from 'node:fs';

const TICKS_A_SECOND = 100;

interface Stat {
  readonly parent: number;
  /** Its own. */
  readonly seconds: number;
  /** Of its children that ended and were waited for. */
  readonly ended: number;
}

function statOf(pid: number | string): Stat | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const seconds = (at: number) => (Number(fields[at]) + Number(fields[at + 1])) / TICKS_A_SECOND;
    return { parent: Number(fields[1]), seconds: seconds(11), ended: seconds(13) };
  } catch {
    return undefined;
  }
}

/** Of the process and of its children, those that ended as well. */
export function cpuSeconds(pid: number): number {
  const own = statOf(pid);
  let seconds = (own?.seconds ?? 0) + (own?.ended ?? 0);
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const stat = statOf(entry);
    if (stat?.parent === pid) seconds += stat.seconds;
  }
  return seconds;
}
