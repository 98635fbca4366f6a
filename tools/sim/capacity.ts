/**
 * `npm run sim -- capacity --seed 1 --hours 72`: a fleet, its tenants and their whims under a clock that the simulation
 * moves: single requests, gangs, windows to come, spot, repeats, renewals, machines that fail, heal and answer late, jumps
 * of the clock, transactions that die before and after their commit. After every step the books are checked by other means
 * than the code that keeps them; then comes a calm in which everything must settle. One seed, one course: the trace of two
 * runs is the same to the letter.
 */
import { canonicalHash, type Json } from '#core/kernel/canonical-json.ts';
import { DatabaseUnavailable } from '#core/kernel/database.ts';
import { isProblem } from '#core/kernel/errors.ts';
import { takeIds } from '#core/kernel/ids.ts';
import type { Log } from '#core/kernel/log.ts';
import { type Random, seededRandom } from '#core/kernel/random.ts';
import { addSeconds, type Clock } from '#core/kernel/time.ts';
import { SHARDS } from '#db/work-queue.ts';
import { bookErrors } from '#kit/books.ts';
import { type TestClock, takeClock } from '#kit/clock.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { runDue } from '#reconcilers/runtime/engine.ts';
import { ensureSweeps } from '#reconcilers/runtime/sweep.ts';
import { requestContext } from '#services/context.ts';
import { create, release, renew } from '#services/reservations/index.ts';
import { type Crashes, crashing } from './chaos-database.ts';
import { openWorld, type World } from './world.ts';

export interface CapacityOptions {
  readonly seed: number;
  readonly hours: number;
  readonly nodes: number;
  readonly tenants: number;
  /** Runs after every step, to plant a fault in the books; for tests of the simulation itself. */
  readonly sabotage?: (world: World, step: number) => Promise<void>;
}

const GPUS = 8;
const STEP_SECONDS = [30, 60, 120, 300, 600] as const;
const PODS = 4;
/** Answers that a caller must live with. */
const EXPECTED = new Set([
  'CAPACITY_UNAVAILABLE',
  'QUOTA_EXCEEDED',
  'CONTENTION',
  'CONFLICT',
  'ILLEGAL_TRANSITION',
  'INVALID_REQUEST',
  'UNAVAILABLE',
]);
const CALM_STEPS_MAX = 3_000;

interface Held {
  readonly id: string;
  readonly tenant: number;
}

class Simulation {
  readonly trace: Json[] = [];
  readonly errors: string[] = [];
  readonly tally: Record<string, number> = {};
  readonly held: Held[] = [];
  readonly world: World;
  readonly fleet: Fleet;
  readonly clock: TestClock;
  readonly crashes: Crashes = { before: 0.01, after: 0.01, count: 0 };
  readonly #o: CapacityOptions;
  readonly #random: Random;
  readonly #api: World['db'];
  readonly #system: World['db'];
  /** Restless while it is not calm. */
  #made = 0;
  readonly #ran: Json[] = [];

  constructor(world: World, fleet: Fleet, clock: TestClock, o: CapacityOptions, random: Random) {
    Object.assign(this, { world, fleet, clock });
    this.world = world;
    this.fleet = fleet;
    this.clock = clock;
    this.#o = o;
    this.#random = random;
    this.#api = crashing(world.db, random.fork('api-crashes'), this.crashes);
    this.#system = crashing(world.system, random.fork('system-crashes'), this.crashes);
  }

  note(what: string, ...more: Json[]): void {
    this.trace.push([what, ...more]);
    this.tally[what] = (this.tally[what] ?? 0) + 1;
  }

  async #context(tenant: number, key: string) {
    const caller = await this.world.callerOf(this.world.tenants[tenant]!);
    const services = { db: this.#api, iam: this.world.iam, poke: () => {}, cursorKey: new Uint8Array(32) };
    return requestContext(services, { caller, requestId: `sim-${key}`, idempotencyKey: key });
  }

  /** Asks until it is answered: a lost connection is asked again under the same key, as clients do. */
  async #asked<T>(what: string, tenant: number, key: string, act: (ctx: never) => Promise<T>): Promise<T | undefined> {
    for (let n = 0; n < 10; n++) {
      try {
        return await act((await this.#context(tenant, key)) as never);
      } catch (e) {
        if (e instanceof DatabaseUnavailable || (isProblem(e) && e.code === 'UNAVAILABLE')) continue;
        if (isProblem(e) && EXPECTED.has(e.code)) {
          this.note(`${what} ${e.code}`);
          return undefined;
        }
        this.errors.push(`${what} ${key}: ${describe(e)}`);
        return undefined;
      }
    }
    this.errors.push(`${what} ${key}: never answered`);
    return undefined;
  }

  async request(): Promise<void> {
    const r = this.#random;
    const tenant = r.int(0, this.world.tenants.length - 1);
    const key = `k${this.#made++}`;
    const kind = r.next();
    const now = await this.clock.now();
    const gang = kind < 0.15;
    const spot = kind >= 0.15 && kind < 0.35;
    const later = !spot && r.chance(0.4);
    const devices = [
      {
        class: 'gpu' as const,
        count: gang ? GPUS : r.chance(0.7) ? r.int(1, 3) : r.int(4, GPUS),
        ...(!gang && r.chance(0.2)
          ? { selectors: [{ attribute: 'numaNode', op: 'equals' as const, value: r.int(0, 1) }] }
          : {}),
      },
    ];
    const body = {
      poolId: this.fleet.poolId,
      devices,
      durationSeconds: r.pick([300, 1800, 3600, 4 * 3600, 12 * 3600]),
      binding: 'hold' as const,
      spot,
      ...(gang
        ? { gang: { nodes: r.int(2, 6), replace: r.chance(0.8), ...(r.chance(0.3) ? { sameLabel: 'pod' } : {}) } }
        : {}),
      ...(later ? { start: addSeconds(now, r.pick([60, 600, 1800, 3600, 6 * 3600, 24 * 3600])) } : {}),
      ...(r.chance(0.15) ? { leaseSeconds: r.int(60, 3600) } : {}),
    };
    const what = gang ? 'gang' : spot ? 'spot' : later ? 'window' : 'request';
    const made = await this.#asked(what, tenant, key, (ctx) => create(ctx, { body }));
    if (made === undefined) return;
    this.note(`${what} ${made.state}`, made.id, made.startsAt ?? null);
    this.held.push({ id: made.id, tenant });
    if (r.chance(0.1)) {
      const again = await this.#asked('repeat', tenant, key, (ctx) => create(ctx, { body }));
      if (again !== undefined && again.id !== made.id) this.errors.push(`a repeat of ${key} made ${again.id}`);
    }
  }

  async giveOrRenew(): Promise<void> {
    const r = this.#random;
    if (this.held.length === 0) return;
    const i = r.int(0, this.held.length - 1);
    const { id, tenant } = this.held[i]!;
    const key = `v${this.#made++}`;
    if (r.chance(0.4)) {
      const body = { durationSeconds: r.pick([600, 3600, 8 * 3600]) };
      const renewed = await this.#asked('renew', tenant, key, (ctx) => renew(ctx, { id, body }));
      if (renewed !== undefined) this.note('renewed', id);
      return;
    }
    const released = await this.#asked('release', tenant, key, (ctx) => release(ctx, { id }));
    if (released !== undefined) this.note('released', id);
    if (!r.chance(0.1)) this.held.splice(i, 1);
  }

  async #change(text: string, id: string): Promise<void> {
    await this.world.system.query(text, [id]);
  }

  /** A machine or one of its devices goes bad, or all is well with it again. */
  async hardware(): Promise<void> {
    const r = this.#random;
    const id = r.pick(this.fleet.nodeIds);
    const what = r.pick(['cordon', 'unreachable', 'device', 'heal', 'heal']);
    this.note(what, id);
    if (what === 'cordon') await this.#node(`cordoned = true, cordon_reason = 'sim'`, id);
    if (what === 'unreachable') await this.#node(`connectivity = 'unreachable'`, id);
    if (what === 'heal') await this.heal(id);
    if (what === 'device') {
      const slot = r.int(0, GPUS - 1);
      await this.#change(
        `with d as (update devices set health = 'unhealthy', health_reason = 'sim' where node_id = $1 and slot = ${slot} returning node_id)
         select node_refresh(node_id) from d`,
        id,
      );
    }
  }

  #node(change: string, id: string): Promise<void> {
    return this.#change(
      `with n as (update nodes set ${change} where id = $1 returning id) select node_refresh(id) from n`,
      id,
    );
  }

  async heal(id: string): Promise<void> {
    await this.#change(`update devices set health = 'healthy', health_reason = null where node_id = $1`, id);
    await this.#node(`cordoned = false, cordon_reason = null, connectivity = 'connected'`, id);
  }

  /** Time goes by; what is due is done; the machines that can be reached do what they were told, most of them. */
  async pass(seconds: number, calm = false): Promise<void> {
    if (!calm && this.#random.chance(0.004)) {
      this.note('clock jumps');
      await this.clock.jump(this.#random.pick([900, 7200]));
      // Seen as a jump first, and trusted again later.
      await this.#reconcile();
    }
    await this.clock.pass(seconds);
    await this.#reconcile();
    const moved = await machinesObserve(this.world.system, this.#random.next, calm ? 0 : 0.2);
    this.trace.push(['machines', moved, this.#ran.splice(0)]);
    await this.#reconcile();
  }

  async #reconcile(): Promise<void> {
    // Failures are tried again by the queue; only what stays is an error, and the calm shows it.
    const quiet: Log = { debug() {}, info() {}, warn() {}, error() {} };
    await ensureSweeps(this.world.system, RECONCILERS);
    for (let n = 0; n < 50; n++) {
      const report = await runDue({
        db: this.#system,
        reconcilers: RECONCILERS,
        shards: Array.from({ length: SHARDS }, (_, i) => i),
        clock: still,
        log: quiet,
        random: () => 0.5,
        budgetMs: 60_000,
        limit: 5_000,
        parallel: 1,
      });
      this.#ran.push([report.ran, report.failed, this.crashes.count]);
      if (report.nextDueMs !== 0 || report.ran === 0) return;
    }
  }

  async check(when: string, usage = false): Promise<boolean> {
    const wrong = await bookErrors(this.world.system, { usage });
    for (const w of wrong.slice(0, 5)) this.errors.push(`${when}: ${w}`);
    return wrong.length === 0 && this.errors.length === 0;
  }

  async run(): Promise<void> {
    const r = this.#random;
    const until = this.#o.hours * 3600;
    let step = 0;
    for (let at = 0; at < until; step++) {
      for (let n = r.int(0, 4); n > 0; n--) await this.request();
      for (let n = r.int(0, 3); n > 0; n--) await this.giveOrRenew();
      if (r.chance(0.25)) await this.hardware();
      const seconds = r.pick(STEP_SECONDS);
      await this.pass(seconds);
      at += seconds;
      await this.#o.sabotage?.(this.world, step);
      if (!(await this.check(`step ${step}`))) return;
    }
    await this.#calm();
  }

  /** Nothing fails any more and nobody asks: everything must come to its end, or say why not. */
  async #calm(): Promise<void> {
    this.crashes.before = 0;
    this.crashes.after = 0;
    for (const id of this.fleet.nodeIds) await this.heal(id);
    for (let n = 0; n < CALM_STEPS_MAX; n++) {
      await this.pass(n < 20 ? 60 : 1800, true);
      const [left] = await this.world.system.query<{ n: number }>(
        `select count(*)::int as n from reservations where state not in ('released', 'abandoned', 'draft')`,
      );
      if (left!.n === 0) break;
      if (n === CALM_STEPS_MAX - 1) this.errors.push(...(await stuck(this.world)));
    }
    await this.pass(3600, true);
    await this.check('after the calm', true);
  }
}

/** What has not settled, with the reason that it gives. */
async function stuck(world: World): Promise<string[]> {
  const rows = await world.system.query<{ what: string }>(
    `select r.id || ' ' || r.state || ': ' || coalesce(w.reason, w.last_error, 'no reason given') as what
     from reservations r left join work_queue w on w.kind = 'reservations' and w.key = r.id
     where r.state not in ('released', 'abandoned', 'draft') order by r.id limit 20`,
  );
  return rows.map((r) => `stuck: ${r.what}`);
}

/** Budgets and deadlines of a run are of this machine's time, which must not matter. */
const still: Clock = {
  now: () => 0,
  sleep: (_ms, signal) =>
    new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason), { once: true })),
};

const describe = (e: unknown) =>
  e instanceof Error ? `${e.message} ${e.cause instanceof Error ? e.cause.message : ''}` : String(e);

/** Ids in one order for every run: a counter where the time stands in a UUIDv7, the rest from the seed. */
function seededIds(random: Random): () => Uint8Array {
  let n = 0;
  return () => {
    const bytes = Uint8Array.from({ length: 16 }, () => random.int(0, 255));
    new DataView(bytes.buffer).setUint32(0, 0x01900000);
    new DataView(bytes.buffer).setUint32(4, n++);
    return bytes;
  };
}

export async function capacity(o: CapacityOptions): Promise<Record<string, unknown>> {
  const random = seededRandom(o.seed);
  takeIds(seededIds(random.fork('ids')));
  const world = await openWorld({ tenants: o.tenants });
  const inner = openPg(world.url, { max: 1 });
  try {
    await inner.transaction((tx) =>
      tx.script(`
        create sequence sim_ids;
        create or replace function new_id(prefix text) returns text language sql volatile as $$
          select typeid_of(prefix, ('01900000-0000-7000-8000-' || lpad(to_hex(nextval('sim_ids')), 12, '0'))::uuid) $$;
        update iam.credentials set expires_at = expires_at + interval '10 years';`),
    );
    const clock = await takeClock(inner);
    await inner.query(`update test_clock set at = '2027-01-04T00:00:00Z'`);
    const fleet = await seedFleet(world.system, { tenantId: world.rootTenant, nodes: o.nodes, gpus: GPUS });
    await world.system.query(
      `update nodes n set labels = jsonb_build_object('pod', 'pod-' || (u.i % ${PODS})) from unnest($1::text[]) with ordinality u (id, i) where n.id = u.id`,
      [fleet.nodeIds],
    );
    for (const t of world.tenants) await offerPool(world.system, fleet, t, Math.ceil((o.nodes * GPUS) / 2));
    const simulation = new Simulation(world, fleet, clock, o, random.fork('course'));
    await simulation.run();
    const { errors, tally, trace, crashes } = simulation;
    const [books] = await world.system.query<{ held: number; rows: number }>(
      `select (select coalesce(sum(used), 0) from quotas)::int as held, (select count(*)::int from reservations) as rows`,
    );
    if (errors.length === 0 && books!.held !== 0) errors.push(`${books!.held} still charged after everything ended`);
    return {
      ok: errors.length === 0,
      seed: o.seed,
      hours: o.hours,
      nodes: o.nodes,
      steps: trace.length,
      crashes: crashes.count,
      trace: canonicalHash(trace),
      ...books,
      tally,
      errors: errors.slice(0, 20),
    };
  } finally {
    takeIds(undefined);
    await inner.close();
    await world.close();
  }
}
