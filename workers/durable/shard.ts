/**
 * `Shard`: object `shard:<n>` serves a quarter of the work queue. Its alarm gives the shard one bounded turn under the
 * lease of the same name and is always set again, so that it neither sleeps through work nor runs away. Shard 0 also
 * keeps the queue of webhook deliveries fed and tells the hubs of new events.
 *
 * The object remembers nothing that matters: its number, and the lease that an earlier instance of it held, so that
 * this one can end that tenure at once instead of waiting for it to run out. Its writes are fenced by the epoch either
 * way.
 */
import { DurableObject } from 'cloudflare:workers';
import { systemClock } from '#core/kernel/time.ts';
import type { HeldLease } from '#db/leases.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { SHARD_OBJECTS, shardLease, shardTurn, takeOver } from '#reconcilers/runtime/shard.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';
import { enqueueDue } from '../webhooks/sweep.ts';
import { Announcer } from './announce.ts';
import { clockWatch, type DurableEnv, openDatabase } from './bindings.ts';
import { consoleLog } from './console-log.ts';

const log = consoleLog('shard');
/** After a turn that failed as a whole, such as with the database away. */
const RETRY_MS = 2_000;
const PAUSE_MS = 20;
/** A poked shard waits so long for pokes of other isolates: a burst of commits costs one turn. */
const GATHER_MS = 10;

export class Shard extends DurableObject<DurableEnv> {
  readonly #db = openDatabase(this.env);
  readonly #holder = `shard-object/${crypto.randomUUID()}`;
  readonly #announcer = new Announcer(this.#db, this.env.HUB);
  #lease: HeldLease | undefined;
  #begun = false;
  #n: number | undefined;

  /** Something was woken, or the cron looks after us: have a turn at once. */
  async poke(n: number): Promise<void> {
    if (this.#n !== n) await this.ctx.storage.put('n', n);
    this.#n = n;
    await this.#arm(GATHER_MS);
  }

  /** The lease that this instance last worked under; for operators and tests. */
  lease(): HeldLease | undefined {
    return this.#lease;
  }

  override async alarm(): Promise<void> {
    let nextMs = RETRY_MS;
    try {
      const n = this.#n ?? (await this.ctx.storage.get<number>('n'));
      // Never poked: nobody has said which shard this is.
      if (n === undefined) return;
      nextMs = await this.#turn(n);
    } catch (e) {
      log.warn({ holder: this.#holder, err: String(e) }, 'turn failed');
    } finally {
      await this.#arm(nextMs);
    }
  }

  async #turn(n: number): Promise<number> {
    if (!this.#begun) await this.#begin();
    const deliveries = n === 0 ? await this.#lookOut() : undefined;
    let woke = false;
    const sessions = this.#db.keepSessions();
    const turn = await shardTurn({
      db: sessions,
      reconcilers: RECONCILERS,
      clock: systemClock,
      log,
      random: Math.random,
      n,
      holder: this.#holder,
      watch: clockWatch(this.env),
      poke: () => {
        woke = true;
      },
    }).finally(() => sessions.close());
    if (turn.lease?.epoch !== this.#lease?.epoch) {
      log.info({ shard: n, holder: this.#holder, epoch: turn.lease?.epoch ?? null }, 'shard lease changed');
      if (turn.lease !== undefined) await this.ctx.storage.put('lease', turn.lease);
    }
    this.#lease = turn.lease;
    if (turn.ran > 0) await this.#tell(n, woke);
    return Math.max(PAUSE_MS, Math.min(turn.nextMs, deliveries ?? turn.nextMs));
  }

  async #begin(): Promise<void> {
    const earlier = await this.ctx.storage.get<HeldLease>('lease');
    if (earlier !== undefined) await takeOver({ db: this.#db }, earlier);
    await ensureSweeps(this.#db, RECONCILERS);
    this.#begun = true;
  }

  /** Beside the shard's own rows; a fault here must not cost the turn. */
  async #lookOut(): Promise<number | undefined> {
    try {
      await this.#announcer.announce();
      return await enqueueDue(this.#db, this.env.WEBHOOK_QUEUE);
    } catch (e) {
      log.warn({ err: String(e) }, 'deliveries not enqueued');
      return RETRY_MS;
    }
  }

  /** What this turn changed may be work for the others: wake-ups for all, events for shard 0. */
  async #tell(n: number, woke: boolean): Promise<void> {
    const others = Array.from({ length: SHARD_OBJECTS }, (_, i) => i).filter((i) => (woke && i !== n) || i === 0);
    const pokes = others.map((i) => (i === n ? this.#arm(0) : pokeShard(this.env, i)));
    await Promise.allSettled(pokes);
  }

  async #arm(inMs: number): Promise<void> {
    const at = systemClock.now() + inMs;
    const armed = await this.ctx.storage.getAlarm();
    if (armed === null || armed > at) await this.ctx.storage.setAlarm(at);
  }
}

function pokeShard(env: Pick<DurableEnv, 'SHARD'>, n: number): Promise<void> {
  return env.SHARD.getByName(shardLease(n)).poke(n);
}

/** Under many commits, shards are poked so often and no more: each poke is four calls. */
const POKE_SPACING_MS = 100;
let poked = 0;
let nextPoke = 0;

/**
 * After a commit that woke something or emitted an event, and from the cron. A failure only costs time. The first commit
 * pokes at once; those that follow soon share one poke, which leaves after the last of them that relies on it.
 */
export async function pokeShards(env: Pick<DurableEnv, 'SHARD'>): Promise<void> {
  const now = systemClock.now();
  // One is on its way. Should the request that sends it be cut off, its time passes and the next commit pokes again.
  if (now < nextPoke) return;
  const early = poked + POKE_SPACING_MS - now;
  if (early > 0) {
    nextPoke = now + early;
    await systemClock.sleep(early);
  }
  poked = systemClock.now();
  await Promise.allSettled(Array.from({ length: SHARD_OBJECTS }, (_, n) => pokeShard(env, n)));
}
