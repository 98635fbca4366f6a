/**
 * The main job: a tenant reserves three GPUs of one machine and a device of this machine, the machines put exactly these
 * into their CDI folders, the lease is renewed, usage is metered, signed webhooks arrive, too much is refused with
 * reasons, and the release takes it all back.
 */
import { join } from 'node:path';
import { Webhook } from 'standardwebhooks';
import type { Running } from '#cli/dev/up.ts';
import { isProblem, type Problem } from '#core/kernel/errors.ts';
import { bookErrors } from '#kit/books.ts';
import { type WebhookReceiver, webhookReceiver } from '#kit/webhook-receiver.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { type Client, createClient } from '#sdk/client.ts';
import { namedIn } from './cdi.ts';
import { killNine, untilBack, type Victim } from './chaos.ts';
import { must, type Steps, until } from './steps.ts';
import { joinThisMachine } from './this-machine.ts';

const GPUS_A_MACHINE = 8;
const WANTED_GPUS = 3;
const LEASE_SECONDS = 120;
const DURATION_SECONDS = 3600;
/** A message that died with its process is found again by the sweep of the rows, a minute later. */
const TOLD_SECONDS = 180;

interface Reservation {
  readonly id: string;
  readonly state: string;
  readonly leaseExpiresAt?: string;
  readonly endsAt?: string;
  readonly allocations: readonly {
    readonly id: string;
    readonly nodeName: string;
    readonly devices: readonly { readonly class: string; readonly stableId: string }[];
  }[];
}
interface Capacity {
  readonly nodes: { readonly total: number; readonly schedulable: number };
  readonly resources: readonly {
    readonly resource: string;
    readonly total: number;
    readonly allocatable: number;
    readonly allocated: number;
    readonly available: number;
  }[];
}
interface List<T> {
  readonly items: readonly T[];
  readonly nextCursor?: string;
}
interface Event {
  readonly id: string;
  readonly type: string;
  readonly subject: { readonly id: string };
}

export class Story {
  readonly #running: Running;
  readonly #steps: Steps;
  readonly #simulated: number;
  readonly #operator: Client;
  readonly #tenant: Client;
  #receiver: WebhookReceiver | undefined;
  #webhook!: Webhook;
  #simPool = '';
  #ownPool = '';
  #ownClass: 'gpu' | 'node' = 'node';
  #folders: string[] = [];
  readonly #reservations: string[] = [];
  readonly #counted = { machines: 0, reservations: 0, devices: 0, cdiFiles: 0, refusals: 0, kills: 0 };

  constructor(running: Running, steps: Steps, simulated: number) {
    this.#running = running;
    this.#steps = steps;
    this.#simulated = simulated;
    this.#operator = createClient({ baseUrl: running.apiUrl, token: running.operatorToken });
    this.#tenant = createClient({ baseUrl: running.apiUrl, token: running.tenantToken });
  }

  /** Machines join, and the tenant's endpoint is registered. */
  async prepare(): Promise<void> {
    const s = this.#steps;
    const [sim] = ((await this.#operator.call('pools.list')) as List<{ id: string }>).items;
    this.#simPool = sim!.id;
    await s.step(
      `${this.#simulated} simulated GPU machines`,
      () => this.#untilSchedulable(this.#simPool, this.#simulated),
      (c) => `${c.nodes.schedulable} connected, ${count(c, 'gpu').available} GPUs free`,
    );
    const own = await s.step(
      'this machine joins with bcd',
      async () => {
        const joined = await joinThisMachine(this.#running, this.#operator, 0);
        await this.#untilSchedulable(joined.poolId, 1);
        const nodes = (await this.#operator.call('nodes.list', { poolId: joined.poolId })) as List<{
          name: string;
          hardware: unknown;
          hardwareKeyTrusted: boolean;
          conditions: readonly { type: string }[];
        }>;
        return { ...joined, node: nodes.items[0]! };
      },
      ({ node }) =>
        `${node.name}, hardware key ${node.hardwareKeyTrusted ? 'trusted' : 'not trusted'}, conditions [${node.conditions
          .map((c) => c.type)
          .join(', ')}]`,
    );
    this.#ownPool = own.poolId;
    this.#counted.machines = this.#simulated + 1;
    const machine = (i: number) => `machine-${String(i + 1).padStart(5, '0')}`;
    this.#folders = [
      own.cdiFolder,
      ...Array.from({ length: this.#simulated }, (_, i) => join(this.#running.stateDir, 'sim', machine(i), 'cdi')),
    ];
    const receiver = await webhookReceiver();
    this.#receiver = receiver;
    await s.step(
      'tenant registers a webhook',
      () =>
        this.#tenant.call('webhooks.create', {
          url: `${receiver.url}/events`,
          eventTypes: ['reservation.*'],
        }) as Promise<{ id: string; url: string; secret: string }>,
      (w) => {
        this.#webhook = new Webhook(w.secret);
        return `${w.id} at ${w.url}`;
      },
    );
  }

  /** One reservation's life on both pools; `victim` is killed when it hurts most: after each commit, before its effect. */
  async job(victim?: Victim): Promise<void> {
    const s = this.#steps;
    const title = victim === undefined ? '' : ` [${victim} is killed]`;
    const gpus = await s.step(
      `tenant reserves ${WANTED_GPUS} GPUs on one machine${title}`,
      () => this.#reserve(this.#simPool, 'gpu', WANTED_GPUS),
      describe,
    );
    const own = await s.step(
      `tenant reserves this machine`,
      () => this.#reserve(this.#ownPool, this.#ownClass, 1),
      describe,
    );
    const both = [gpus, own];
    await this.#disturb(victim);
    await s.step(
      'CDI specs name exactly the booked devices',
      () => this.#untilNamed(both),
      (n) => `${n} files`,
    );
    await s.step(
      'both are active',
      () => this.#untilState(both, 'active'),
      (l) => l.map((r) => r.id).join(', '),
    );
    await s.step(
      'lease renewed',
      () => this.#renew(gpus),
      (r) => `until ${r.leaseExpiresAt}`,
    );
    await s.step(
      'capacity',
      () => this.#capacity(this.#simPool),
      (c) => {
        const g = count(c, 'gpu');
        must(g.allocated === WANTED_GPUS, `${WANTED_GPUS} GPUs are allocated, not ${g.allocated}`);
        return `${g.total} GPUs, ${g.allocated} held, ${g.available} free`;
      },
    );
    await s.step(
      'usage is metered',
      () => this.#untilUsed(both),
      (sums) => sums.map((m) => `${m.meter} ${m.deviceSeconds} device-seconds`).join(', '),
    );
    await this.#refusals();
    for (const r of both) await this.#tenant.call('reservations.release', { id: r.id });
    await this.#disturb(victim);
    await s.step('released; nothing is named any more', async () => {
      await this.#untilState(both, 'released');
      await until('every CDI folder is empty', async () => (namedIn(this.#folders).length === 0 ? true : undefined));
    });
    await s.step('everything is free again', () => this.#untilFree());
    await s.step(
      'signed webhooks arrived and verify',
      () => this.#untilTold(both),
      (n) => `${n} events of these two`,
    );
  }

  /** The whole history against the books and against what was received; then nothing of the tenant's is left. */
  async audit(): Promise<Record<string, number>> {
    const history = await this.#history();
    const { verified, repeated } = this.#received();
    await this.#steps.step(
      'books',
      async () => {
        const db = openPg(this.#running.databaseUrl, { max: 1, applicationName: 'demo' });
        try {
          const wrong = await bookErrors(db);
          must(wrong.length === 0, wrong.join('; '));
        } finally {
          await db.close();
        }
      },
      () => 'no device was promised twice, quota equals what is held, every hold was metered',
    );
    must(history.length === verified.size, `${history.length} events, ${verified.size} of them received`);
    return { ...this.#counted, events: history.length, webhooks: verified.size, repeated };
  }

  /** Stops listening. */
  async close(): Promise<void> {
    await this.#receiver?.close();
  }

  async #reserve(poolId: string, deviceClass: string, n: number): Promise<Reservation> {
    const made = (await this.#tenant.call('reservations.create', {
      poolId,
      devices: [{ class: deviceClass, count: n }],
      durationSeconds: DURATION_SECONDS,
      leaseSeconds: LEASE_SECONDS,
    })) as Reservation;
    this.#reservations.push(made.id);
    this.#counted.reservations += 1;
    this.#counted.devices += n;
    must(made.allocations.length === 1, 'all devices are on one node');
    must(made.allocations[0]!.devices.length === n, `${n} devices are allocated`);
    return made;
  }

  async #disturb(victim: Victim | undefined): Promise<void> {
    if (victim === undefined) return;
    const { supervisor } = this.#running;
    const before = await killNine(supervisor, victim);
    this.#counted.kills += 1;
    const now = await untilBack(supervisor, victim, before);
    this.#steps.line(`${victim} killed (pid ${before}) and started again (pid ${now})`);
  }

  #untilNamed(reservations: readonly Reservation[]): Promise<number> {
    const wanted = reservations
      .flatMap((r) => r.allocations)
      .map((a) => `${a.id} ${a.devices.map((d) => d.stableId).sort()}`)
      .sort();
    return until(`the CDI folders name ${wanted.join('; ')}`, async () => {
      const named = namedIn(this.#folders);
      if (named.length < wanted.length) return undefined;
      const found = named.map((n) => `${n.allocationId} ${n.stableIds}`).sort();
      must(found.join() === wanted.join(), `the folders name ${found.join('; ')}`);
      this.#counted.cdiFiles += named.length;
      return named.length;
    });
  }

  #untilState(reservations: readonly Reservation[], state: string): Promise<Reservation[]> {
    return until(`they are ${state}`, async () => {
      const now = await Promise.all(
        reservations.map((r) => this.#tenant.call('reservations.get', { id: r.id }) as Promise<Reservation>),
      );
      const other = now.find((r) => r.state !== state);
      if (other === undefined) return now;
      const why = await this.#tenant.call('reservations.explain', { id: other.id });
      throw new Error(JSON.stringify(why));
    });
  }

  async #renew(r: Reservation): Promise<Reservation> {
    const renewed = (await this.#tenant.call('reservations.renew', {
      id: r.id,
      durationSeconds: 2 * DURATION_SECONDS,
    })) as Reservation;
    must(renewed.leaseExpiresAt! > r.leaseExpiresAt!, 'the lease ends later than before');
    must(renewed.endsAt! > r.endsAt!, 'the reservation ends later than before');
    return renewed;
  }

  #capacity(poolId: string): Promise<Capacity> {
    return this.#tenant.call('capacity.get', { poolId }) as Promise<Capacity>;
  }

  #untilSchedulable(poolId: string, machines: number): Promise<Capacity> {
    return until(`${machines} machines take work`, async () => {
      const c = (await this.#operator.call('capacity.get', { poolId })) as Capacity;
      return c.nodes.schedulable === machines ? c : undefined;
    });
  }

  #untilUsed(reservations: readonly Reservation[]) {
    return until('usage shows both', async () => {
      const sums = await Promise.all(
        reservations.map(async ({ id }) => {
          const u = (await this.#tenant.call('usage.list', { reservationId: id })) as {
            sums: { meter: string; deviceSeconds: number; hours: string }[];
          };
          return u.sums.find((m) => m.deviceSeconds > 0);
        }),
      );
      return sums.every((m) => m !== undefined) ? sums.map((m) => m!) : undefined;
    });
  }

  async #refusals(): Promise<void> {
    const s = this.#steps;
    const explain = (p: Problem) => {
      this.#counted.refusals += 1;
      const { reasons = [] } = (p.details ?? {}) as { reasons?: { message: string; nodes: number }[] };
      return `${p.code}, ${p.message}${reasons.map((r) => `; ${r.nodes} machines: ${r.message}`).join('')}`;
    };
    const tooMany = GPUS_A_MACHINE + 1;
    await s.step(
      `${tooMany} GPUs of one machine are refused`,
      () => this.#refused(this.#simPool, 'gpu', tooMany),
      explain,
    );
    await s.step(
      'this machine a second time is refused',
      () => this.#refused(this.#ownPool, this.#ownClass, 1),
      explain,
    );
  }

  async #refused(poolId: string, deviceClass: string, n: number): Promise<Problem> {
    try {
      await this.#tenant.call('reservations.create', {
        poolId,
        devices: [{ class: deviceClass, count: n }],
        durationSeconds: DURATION_SECONDS,
      });
    } catch (e) {
      if (isProblem(e) && (e.code === 'CAPACITY_UNAVAILABLE' || e.code === 'QUOTA_EXCEEDED')) return e;
      throw e;
    }
    throw new Error('more was promised than there is');
  }

  async #untilFree(): Promise<void> {
    for (const [pool, machines] of [
      [this.#simPool, this.#simulated],
      [this.#ownPool, 1],
    ] as const) {
      await until('all of it is free', async () => {
        const c = await this.#capacity(pool);
        const busy = c.resources.some((r) => r.allocated !== 0 || r.available !== r.total);
        return busy || c.nodes.schedulable !== machines ? undefined : true;
      });
      const quota = (await this.#tenant.call('quotas.get', { poolId: pool })) as List<{ used: number }>;
      must(
        quota.items.every((q) => q.used === 0),
        'no quota is in use',
      );
    }
  }

  /** Every event of these reservations that the history has was received and verifies. */
  #untilTold(reservations: readonly Reservation[]): Promise<number> {
    const ids = reservations.map((r) => r.id);
    return until(
      'their webhooks arrived',
      async () => {
        const told = (await this.#history()).filter((e) => ids.includes(e.subject.id));
        const { verified } = this.#received();
        for (const type of [
          'reservation.booked',
          'reservation.active',
          'reservation.releasing',
          'reservation.released',
        ]) {
          must(told.filter((e) => e.type === type).length === ids.length, `one ${type} for each`);
        }
        return told.every((e) => verified.has(e.id)) ? told.length : undefined;
      },
      TOLD_SECONDS,
    );
  }

  async #history(): Promise<Event[]> {
    const all: Event[] = [];
    let cursor: string | undefined;
    for (;;) {
      const page = (await this.#tenant.call('events.list', {
        types: 'reservation.*',
        limit: 200,
        ...(cursor === undefined ? {} : { cursor }),
      })) as List<Event>;
      if (page.items.length === 0) return all;
      all.push(...page.items);
      cursor = page.nextCursor;
    }
  }

  /** Throws where a signature does not hold. An event may come twice, under the same id. */
  #received(): { verified: Set<string>; repeated: number } {
    const verified = new Set<string>();
    let repeated = 0;
    for (const { body, headers } of this.#receiver?.received ?? []) {
      this.#webhook.verify(body, { ...headers });
      const id = headers['webhook-id']!;
      if (verified.has(id)) repeated += 1;
      verified.add(id);
    }
    return { verified, repeated };
  }
}

function describe(r: Reservation): string {
  const [a] = r.allocations;
  return `${r.id} on ${a!.nodeName}: ${a!.devices.map((d) => d.stableId).join(', ')}`;
}

function count(c: Capacity, resource: string) {
  const found = c.resources.find((r) => r.resource === resource);
  if (found === undefined) throw new Error(`the pool has no ${resource}`);
  return found;
}
