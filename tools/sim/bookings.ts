/**
 * `npm run sim -- bookings --seed 1`: many clients fight over a small fleet, through the real services on a real
 * Postgres; some repeat themselves, some change their mind, machines answer late. Then everything is released, and the
 * books are checked by other means than the code that kept them. Run once with the product's placer and once with one
 * that answers at random: the constraint must hold either way.
 */
import { isProblem, Problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import { type Random, seededRandom } from '#core/kernel/random.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { CandidateNode, DeviceWant, Proposal } from '#core/placement/place.ts';
import { bookErrors } from '#kit/books.ts';
import { type Fleet, machinesObserve, offerPool, seedFleet } from '#kit/fleet.ts';
import { RECONCILERS } from '#reconcilers/index.ts';
import { nodeHost } from '#reconcilers/node-host.ts';
import { type RequestContext, requestContext } from '#services/context.ts';
import { create, release, renew } from '#services/reservations/index.ts';
import { openWorld, type World } from './world.ts';

export interface BookingsOptions {
  readonly seed: number;
  readonly clients: number;
  readonly requests: number;
  readonly nodes: number;
  readonly placer: 'product' | 'random';
}

interface Tally {
  admitted: number;
  replayed: number;
  refused: Record<string, number>;
  renewed: number;
  releasedTwice: number;
  [name: string]: number | Record<string, number>;
}

const TENANTS = 8;
const GPUS = 8;
const SETTLE_SECONDS_MAX = 120;

/** Any devices of any node, free or not, of the right count or not: whatever it says, the books must stay right. */
function randomPlacer(random: Random) {
  return (wants: readonly DeviceWant[], nodes: readonly CandidateNode[]): Proposal[] => {
    if (nodes.length === 0) return [];
    const count = wants.reduce((a, w) => a + w.count, 0);
    return Array.from({ length: 3 }, () => {
      const node = random.pick(nodes);
      const nos = new Set(
        Array.from({ length: count + (random.chance(0.1) ? 1 : 0) }, () => random.pick(node.devices).no),
      );
      return { nodeId: node.nodeId, deviceNos: [...nos] };
    });
  };
}

async function contextFor(
  world: World,
  tenantId: string,
  key: string,
  placer?: RequestContext['placer'],
): Promise<RequestContext> {
  return requestContext(
    {
      db: world.db,
      iam: world.iam,
      poke: world.poke,
      cursorKey: new Uint8Array(32),
      ...(placer === undefined ? {} : { placer }),
    },
    { caller: await world.callerOf(tenantId), requestId: `sim-${key}`, idempotencyKey: key },
  );
}

async function client(
  world: World,
  fleet: Fleet,
  n: number,
  o: BookingsOptions,
  random: Random,
  budget: { left: number },
  tally: Tally,
): Promise<void> {
  const tenantId = world.tenants[n % world.tenants.length]!;
  const placer = o.placer === 'random' ? randomPlacer(random.fork('placer')) : undefined;
  const held: string[] = [];
  const attempt = async (what: () => Promise<void>) => {
    try {
      await what();
    } catch (e) {
      if (!isProblem(e) || e.code === 'INTERNAL') throw e;
      tally.refused[e.code] = (tally.refused[e.code] ?? 0) + 1;
    }
  };
  const give = (id: string) =>
    attempt(async () => {
      await release(await contextFor(world, tenantId, `rel-${id}-${random.next()}`), { id });
    });
  for (let i = 0; budget.left-- > 0; i++) {
    const key = `c${n}-${i}`;
    const body = {
      poolId: fleet.poolId,
      devices: [
        {
          class: 'gpu' as const,
          count: random.chance(0.7) ? random.int(1, 2) : random.int(3, GPUS),
          ...(random.chance(0.3) ? { selectors: [{ attribute: 'numaNode', op: 'in' as const, values: [0, 1] }] } : {}),
        },
      ],
      durationSeconds: random.pick([60, 3600, 86_400]),
      ...(random.chance(0.2) ? { leaseSeconds: random.int(10, 60) } : {}),
      binding: 'hold' as const,
      spot: false,
    };
    await attempt(async () => {
      const ctx = await contextFor(world, tenantId, key, placer);
      const made = await create(ctx, { body });
      tally.admitted++;
      held.push(made.id);
      if (random.chance(0.1)) {
        const again = await create(ctx, { body });
        if (again.id !== made.id)
          throw new Problem('INTERNAL', `a repeated key made ${again.id} beside ${made.id}`, undefined);
        tally.replayed++;
      }
    });
    // Refused or not, others must get a turn; a client that spins only measures refusals.
    await systemClock.sleep(random.int(0, 200));
    if (held.length > 0 && random.chance(0.15)) {
      const id = random.pick(held);
      await attempt(async () => {
        await renew(await contextFor(world, tenantId, `ren-${key}`), { id, body: { durationSeconds: 7200 } });
        tally.renewed++;
      });
    }
    while (held.length > random.int(0, 2)) {
      const id = held.shift()!;
      await give(id);
      if (random.chance(0.1)) {
        await give(id);
        tally.releasedTwice++;
      }
    }
  }
  for (const id of held) await give(id);
}

export async function bookings(o: BookingsOptions): Promise<Record<string, unknown>> {
  const random = seededRandom(o.seed);
  const world = await openWorld({ tenants: TENANTS });
  try {
    const fleet = await seedFleet(world.db, { tenantId: world.rootTenant, nodes: o.nodes, gpus: GPUS });
    for (const t of world.tenants) await offerPool(world.db, fleet, t, Math.ceil((o.nodes * GPUS) / 4));
    const host = nodeHost({
      db: world.system,
      reconcilers: RECONCILERS,
      clock: systemClock,
      log: world.log,
      random: random.fork('back-off').next,
      holder: newId('gateway'),
    });
    host.start();
    world.poke = host.poke;
    let running = true;
    const lag = random.fork('machines');
    const machines = (async () => {
      while (running) {
        if ((await machinesObserve(world.system, lag.next, 0.2)) === 0) await systemClock.sleep(20);
        else host.poke();
      }
    })();
    const errors: string[] = [];
    const budget = { left: o.requests };
    const tally: Tally = { admitted: 0, replayed: 0, refused: {}, renewed: 0, releasedTwice: 0 };
    const clients = Array.from({ length: o.clients }, (_, n) =>
      client(world, fleet, n, o, random.fork(`client-${n}`), budget, tally),
    );
    const failed = (await Promise.allSettled(clients)).flatMap((r) =>
      r.status === 'rejected' ? [`client died: ${describe(r.reason)}`] : [],
    );
    errors.push(...failed, ...(await bookErrors(world.db)));

    const stuck = await settled(world);
    running = false;
    await machines;
    await host.stop();
    errors.push(...(await bookErrors(world.db, { usage: true })), ...stuck);
    const [books] = await world.db.query<{ bookings: number; held: number; rows: number; deadlocks: number }>(
      `select (select count(*) from device_bookings) + (select count(*) from booking_history) as bookings,
         (select coalesce(sum(used), 0) from quotas)::int as held, (select count(*) from reservations) as rows,
         (select deadlocks from pg_stat_database where datname = current_database()) as deadlocks`,
    );
    if (books!.held !== 0) errors.push(`${books!.held} still charged after everything was released`);
    return {
      ok: errors.length === 0,
      placer: o.placer,
      seed: o.seed,
      clients: o.clients,
      requests: o.requests,
      nodes: o.nodes,
      ...tally,
      ...books,
      errors: errors.slice(0, 20),
    };
  } finally {
    await world.close();
  }
}

const describe = (e: unknown) =>
  e instanceof Error ? `${e.message} ${e.cause instanceof Error ? e.cause.message : ''}` : String(e);

/** Waits until nothing moves any more; what does not come to rest is named with the reason it gives. */
async function settled(world: World): Promise<string[]> {
  for (let waited = 0; waited < SETTLE_SECONDS_MAX * 10; waited++) {
    const [n] = await world.db.query<{ n: number }>(
      "select count(*) as n from reservations where state in ('booked', 'active', 'releasing')",
    );
    if (n!.n === 0) return [];
    await systemClock.sleep(100);
  }
  const rows = await world.db.query<{ what: string }>(
    `select r.id || ' ' || r.state || ': ' || coalesce(w.reason, 'no reason given') as what
     from reservations r left join work_queue w on w.kind = 'reservations' and w.key = r.id
     where r.state in ('booked', 'active', 'releasing') order by r.id limit 20`,
  );
  return rows.map((r) => `stuck: ${r.what}`);
}
