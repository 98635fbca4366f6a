/** The cron tick: arms every shard again, whatever became of its alarm. */

import { RECONCILERS } from '#reconcilers/index.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';
import { type DurableEnv, openDatabase } from './bindings.ts';
import { consoleLog } from './console-log.ts';
import { pokeShards } from './shard.ts';

export async function onCron(env: DurableEnv): Promise<void> {
  await pokeShards(env);
  try {
    await ensureSweeps(openDatabase(env), RECONCILERS);
  } catch (e) {
    consoleLog('cron').warn({ err: String(e) }, 'sweeps not ensured');
  }
}
