/**
 * Hosts the shards in one process: for tests, the simulator, and a control plane without Workers. `step()` gives each
 * shard one turn and awaits it, which is all that a simulated clock needs; `start()` keeps going until `stop()`.
 */
import type { Turn } from './runtime/shard.ts';
import { SHARD_OBJECTS, shardTurn, type TurnOptions } from './runtime/shard.ts';
import { ensureSweeps } from './runtime/sweep.ts';

export interface NodeHostOptions extends Omit<TurnOptions, 'n' | 'poke'> {
  /** After each turn that ran something, and when idle: work that is not in the queue, such as due deliveries. */
  readonly afterTurn?: () => Promise<void>;
}

export interface NodeHost {
  /** Something was woken: look now. Never throws. */
  poke(): void;
  /** One turn of every shard, then `afterTurn`. */
  step(): Promise<Turn[]>;
  start(): void;
  /** Ends the loop after the turn that is running. Leases run out by themselves, or are taken over. */
  stop(): Promise<void>;
}

const RETRY_MS = 1_000;

export function nodeHost(o: NodeHostOptions): NodeHost {
  let running: Promise<void> | undefined;
  let stopped = false;
  let poked = false;
  let alarm = new AbortController();
  let swept = false;

  const poke = () => {
    poked = true;
    alarm.abort();
  };
  const step = async () => {
    if (!swept) await ensureSweeps(o.db, o.reconcilers);
    swept = true;
    const turns: Turn[] = [];
    for (let n = 0; n < SHARD_OBJECTS; n++) turns.push(await shardTurn({ ...o, n, poke }));
    await o.afterTurn?.();
    return turns;
  };
  const loop = async () => {
    while (!stopped) {
      poked = false;
      alarm = new AbortController();
      let nextMs = RETRY_MS;
      try {
        nextMs = Math.min(...(await step()).map((t) => t.nextMs));
      } catch (e) {
        o.log.warn({ err: String(e) }, 'shard turn failed');
        // The database may be back empty-handed: make sure of the sweeps again.
        swept = false;
      }
      if (!poked && !stopped) await o.clock.sleep(nextMs, alarm.signal).catch(() => {});
    }
  };
  return {
    poke,
    step,
    start: () => {
      running ??= loop();
    },
    stop: async () => {
      stopped = true;
      poke();
      await running;
    },
  };
}
