/**
 * `npm run demo [-- --chaos]`: the main job, end to end, on this machine. Prints one line a step, and last one line of
 * JSON; exit 1 when `ok` is false. With `--chaos`, the job is done again for each process that may crash, and the
 * process is killed in the middle of it.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { removeState } from '#cli/dev/postgres-places.ts';
import { type Running, startAll } from '#cli/dev/up.ts';
import { isAlive } from '#cli/dev/workerd-process.ts';
import { VICTIMS } from './chaos.ts';
import { Steps } from './steps.ts';
import { Story } from './story.ts';

const SIMULATED = 16;
const LOG_LINES = 60;

const { values } = parseArgs({ options: { chaos: { type: 'boolean', default: false } } });
const stateDir = mkdtempSync(join(tmpdir(), 'better-compute-demo-'));
const steps = new Steps();
const log: string[] = [];
let running: Running | undefined;
let story: Story | undefined;
let stopping: Promise<void> | undefined;

/** Everything that was started is gone afterwards, whatever it died of. */
function stop(): Promise<void> {
  stopping ??= (async () => {
    await story?.close();
    await running?.stop();
    removeState(stateDir);
  })();
  return stopping;
}
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void stop().finally(() => process.exit(130)));
}

try {
  running = await steps.step(
    'control plane',
    () =>
      startAll({
        stateDir,
        sim: SIMULATED,
        log: (name, line) => {
          if (log.push(`${name} | ${line}`) > LOG_LINES) log.shift();
        },
      }),
    (r) => `${r.apiUrl}, gateway on port ${r.ports.gateway}, Postgres on port ${r.ports.postgres}`,
  );
  story = new Story(running, steps, SIMULATED);
  await story.prepare();
  await story.job();
  for (const victim of values.chaos ? VICTIMS : []) await story.job(victim);
  const counted = await story.audit();
  const pids = Object.values(running.supervisor.pids());
  await stop();
  const left = pids.filter(isAlive);
  if (left.length > 0) throw new Error(`still running after the stop: ${left.join(', ')}`);
  steps.line('stopped: every process ended, the state folder is gone');
  const seconds = Number(steps.seconds().toFixed(1));
  console.log(JSON.stringify({ ok: true, chaos: values.chaos, steps: steps.count, seconds, ...counted }));
} catch (e) {
  process.stderr.write(`${log.join('\n')}\n${e instanceof Error ? `${e.stack}` : String(e)}\n`);
  for (let cause = (e as Error).cause; cause instanceof Error; cause = cause.cause) {
    process.stderr.write(`because of: ${cause.stack}\n`);
  }
  await stop();
  const what = e instanceof Error ? e.message : String(e);
  console.log(JSON.stringify({ ok: false, chaos: values.chaos, steps: steps.count, what }));
  process.exitCode = 1;
}
