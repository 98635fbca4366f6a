/**
 * Whoever started us may be killed in a way that it cannot pass on: npm and the shell below it, or a launcher that runs
 * us with another Node. What they started ends with them.
 */
import { systemClock } from '#core/kernel/time.ts';
import { isAlive, parentOf } from './workerd-process.ts';

const LOOK_MS = 500;

/** npm runs a shell that runs us; our own launcher names itself. A shell that started us directly may end and we go on. */
function launchers(env: NodeJS.ProcessEnv): number[] {
  const own = Number(env['BETTER_COMPUTE_LAUNCHER'] ?? 0);
  const direct = own > 0 ? own : process.ppid;
  const found = own > 0 ? [own] : [];
  if (env['npm_lifecycle_event'] !== undefined) {
    const shell = own > 0 ? parentOf(own) : direct;
    const npm = shell === undefined ? undefined : parentOf(shell);
    found.push(...[shell, npm].filter((pid): pid is number => pid !== undefined && pid > 1));
  }
  return found;
}

/** Resolves when one of them is gone; never without any. */
export async function launcherGone(signal: AbortSignal, env: NodeJS.ProcessEnv = process.env): Promise<void> {
  const pids = launchers(env);
  while (pids.length === 0 || pids.every(isAlive)) await systemClock.sleep(LOOK_MS, signal);
}
