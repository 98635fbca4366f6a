/** Kills processes of the running product as a crash would, and waits until its supervisor has them back. */
import type { Supervisor } from '#cli/dev/supervisor.ts';
import { until } from './steps.ts';
import { BCD } from './this-machine.ts';

/** Each is killed once in the middle of a reservation's life. */
export const VICTIMS = ['gateway', 'workerd', BCD, 'bcd-sim'] as const;
export type Victim = (typeof VICTIMS)[number];

export async function killNine(supervisor: Supervisor, victim: Victim): Promise<number> {
  const pid = await until(`${victim} runs`, async () => supervisor.pids()[victim]);
  process.kill(pid, 'SIGKILL');
  return pid;
}

export function untilBack(supervisor: Supervisor, victim: Victim, before: number): Promise<number> {
  return until(`${victim} runs again`, async () => {
    const now = supervisor.pids()[victim];
    return now === before ? undefined : now;
  });
}
