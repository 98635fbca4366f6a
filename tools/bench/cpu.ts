/** CPU time of processes, from /proc: user and system, in seconds. */
import { readdirSync, readFileSync } from 'node:fs';

const TICKS_A_SECOND = 100;

function statOf(pid: number | string): { parent: number; seconds: number } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { parent: Number(fields[1]), seconds: (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND };
  } catch {
    return undefined;
  }
}

/** Of the process and of its children that live now. */
export function cpuSeconds(pid: number): number {
  let seconds = statOf(pid)?.seconds ?? 0;
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const stat = statOf(entry);
    if (stat?.parent === pid) seconds += stat.seconds;
  }
  return seconds;
}
