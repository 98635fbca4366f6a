/**
 * `npm run bench admission`: how many reservations a second the product admits, beside its ceilings, in one run:
 *  - api: POST /v1/reservations answered by workerd, whose shards sleep, as if the reconcilers had machines of their own;
 *  - whole: the same with the reconcilers at work beside it, converging what was admitted;
 *  - service: the same verb called in this process;
 *  - function: the SQL function that writes the same rows, told that the draft is allowed;
 *  - insert: one row into a plain table.
 * Each arm has its own copy of the same fleet. Rounds take turns, so that a disturbance of the machine meets all arms;
 * a figure is the median of its rounds.
 */
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { edgeChild } from '#cli/dev/children.ts';
import { freePort } from '#cli/dev/ports.ts';
import { localSecrets, TRUST_DOMAIN } from '#cli/dev/secrets.ts';
import { iamCatalog } from '#core/iam/catalog.ts';
import { newId } from '#core/kernel/ids.ts';
import { systemClock } from '#core/kernel/time.ts';
import { IAM_ACTIONS_OF_COMPUTE } from '#core/operations.ts';
import { openPg, type PgDatabase } from '#plugins/database/node-postgres.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import { requestContext } from '#services/context.ts';
import { create } from '#services/reservations/index.ts';
import { type AdmissionWorld, openAdmissionWorld } from './admission-world.ts';
import { cpuSeconds } from './cpu.ts';
import { type Arm, load, type Measured, median, rest } from './load.ts';
import { profileOf } from './profile.ts';

export interface AdmissionOptions {
  readonly clients: number;
  readonly seconds: number;
  readonly rounds: number;
  readonly nodes: number;
}

type Name = 'whole' | 'api' | 'service' | 'function' | 'insert';
const NAMES: readonly Name[] = ['insert', 'function', 'service', 'api', 'whole'];
const API_ALONE = fileURLToPath(new URL('./api-alone.ts', import.meta.url));

/** An arm with what is counted of it while it runs. */
interface Standing extends Arm {
  readonly name: Name;
  readonly db: PgDatabase;
  /** Processes beside Postgres and this one. */
  readonly pids: readonly number[];
  close(): Promise<void>;
}

const DEVICES = [{ class: 'gpu', count: 1 }];
const BODY = { devices: DEVICES, durationSeconds: 3600, binding: 'hold' as const };

async function insertArm(url: string, world: AdmissionWorld, clients: number): Promise<Standing> {
  const db = openPg(url, { max: clients });
  const body = JSON.stringify(BODY);
  return {
    name: 'insert',
    db,
    pids: [],
    run: async (client) => {
      await db.query('insert into bench_rows (id, tenant_id, at, body) values ($1, $2, compute_now(), $3)', [
        newId('reservation'),
        world.tenants[client]!.id,
        body,
      ]);
    },
    close: () => db.close(),
  };
}

async function functionArm(url: string, world: AdmissionWorld, clients: number): Promise<Standing> {
  const db = openPg(url, { max: clients });
  const [pool] = await db.query<{ facts: object }>(
    `select jsonb_build_object('pool', id, 'class', class, 'site', site_id, 'model', gpu_model) as facts from pools where id = $1`,
    [world.poolId],
  );
  const expected = JSON.stringify({ gpus: 1, ...pool!.facts });
  const context = { identityId: 'idn_x', sessionKind: 'user', sessionId: 'ses_x', requestId: 'bench' };
  return {
    name: 'function',
    db,
    pids: [],
    run: async (client) => {
      const { id: tenantId, identityId } = world.tenants[client]!;
      const id = newId('reservation');
      const draft = {
        ...BODY,
        id,
        tenantId,
        identityId,
        key: id,
        fingerprint: id,
        poolId: world.poolId,
        context,
        attributes: { gpus: 1 },
      };
      const admit = {
        id,
        allocationIds: [newId('allocation')],
        wants: { gpu: 1 },
        lead: 'gpu',
        context,
        actor: 'bench',
      };
      const [row] = await db.query<{ done: boolean }>(
        `select (reservation_create($1, $2, $3) #>> '{admitted,done}')::boolean as done`,
        [JSON.stringify(draft), expected, JSON.stringify(admit)],
      );
      if (row?.done !== true) throw new Error('not admitted');
    },
    close: () => db.close(),
  };
}

async function serviceArm(url: string, world: AdmissionWorld, clients: number): Promise<Standing> {
  const db = openPg(url, { max: clients });
  const iam = embeddedIam(db, { clock: systemClock, catalog: iamCatalog(IAM_ACTIONS_OF_COMPUTE) });
  const services = { db, iam, poke: () => {}, cursorKey: new Uint8Array(32) };
  return {
    name: 'service',
    db,
    pids: [],
    // As the API does: the token is looked at with every request.
    run: async (client) => {
      const key = newId('event');
      const caller = await iam.authenticate(world.tenants[client]!.token, { requestId: key });
      const ctx = requestContext(services, { caller, requestId: key, idempotencyKey: key });
      await create(ctx, { body: { ...BODY, poolId: world.poolId } as never });
    },
    close: () => db.close(),
  };
}

async function edgeArm(name: 'api' | 'whole', url: string, world: AdmissionWorld, clients: number): Promise<Standing> {
  const db = openPg(url, { max: 1 });
  const secrets = await localSecrets(join(world.stateDir, name));
  const port = await freePort();
  const vars = {
    DATABASE_URL: url,
    CA_CERT_PEM: secrets.caCertPem,
    CA_KEY_PEM: secrets.caKeyPem,
    TRUST_DOMAIN,
    GATEWAY_TOKEN: secrets.gatewayToken,
  };
  const entry = name === 'api' ? API_ALONE : undefined;
  const edge = await edgeChild(join(world.stateDir, name), port, vars, entry).start(() => {});
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const body = JSON.stringify({ ...BODY, poolId: world.poolId });
  return {
    name,
    db,
    // Its child workerd is counted with it.
    pids: [await edge.process.pid],
    run: (client) => post(agent, port, world.tenants[client]!.token, body),
    async close() {
      agent.destroy();
      await edge.process.stop();
      await db.close();
    },
  };
}

/** The plain client of Node, which costs least of the two cores that everything shares here. */
function post(agent: Agent, port: number, token: string, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      'idempotency-key': newId('event'),
    };
    const sent = request(
      { agent, port, host: '127.0.0.1', method: 'POST', path: '/v1/reservations', headers },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (d: string) => {
          text += d;
        });
        answer.on('end', () =>
          answer.statusCode === 201 ? resolve() : reject(new Error(`${answer.statusCode} ${text}`)),
        );
        answer.on('error', reject);
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

interface Figures extends Measured {
  /** CPU milliseconds of one operation, by process. */
  readonly cpuMs: { readonly postgres: number; readonly worker: number; readonly client: number };
}

async function round(arm: Standing, o: AdmissionOptions, postmaster: number): Promise<Figures> {
  const read = () => [
    cpuSeconds(postmaster),
    arm.pids.reduce((a, p) => a + cpuSeconds(p), 0),
    process.cpuUsage().user / 1e6 + process.cpuUsage().system / 1e6,
  ];
  const before = read();
  const measured = await load(arm, o);
  const after = read();
  const [postgres, worker, client] = after.map((s, i) => ((s - before[i]!) * 1000) / measured.operations);
  return { ...measured, cpuMs: { postgres: postgres!, worker: worker!, client: client! } };
}

function middle(figures: readonly Figures[]): Figures {
  const of = (pick: (f: Figures) => number) => Number(median(figures.map(pick)).toFixed(3));
  return {
    perSecond: of((f) => f.perSecond),
    p50: of((f) => f.p50),
    p99: of((f) => f.p99),
    operations: figures.reduce((a, f) => a + f.operations, 0),
    cpuMs: {
      postgres: of((f) => f.cpuMs.postgres),
      worker: of((f) => f.cpuMs.worker),
      client: of((f) => f.cpuMs.client),
    },
  };
}

export async function admission(o: AdmissionOptions) {
  const world = await openAdmissionWorld(o);
  const arms: Standing[] = [];
  try {
    const open = {
      whole: edgeArm.bind(null, 'whole'),
      api: edgeArm.bind(null, 'api'),
      service: serviceArm,
      function: functionArm,
      insert: insertArm,
    };
    for (const name of NAMES) arms.push(await open[name](await world.copy(`arm_${name}`), world, o.clients));
    const postmaster = await world.server.process.pid;
    for (const arm of arms) await load(arm, { clients: o.clients, seconds: 1 });
    const figures = new Map<Name, Figures[]>(NAMES.map((n) => [n, []]));
    for (let i = 0; i < o.rounds; i++) {
      for (const arm of i % 2 === 0 ? arms : [...arms].reverse()) {
        await rest();
        figures.get(arm.name)!.push(await round(arm, o, postmaster));
      }
    }
    const result = Object.fromEntries(NAMES.map((n) => [n, middle(figures.get(n)!)])) as Record<Name, Figures>;
    const deadlocks = await deadlocksOf(arms);
    const profile = await profileOf(arms.find((a) => a.name === 'function')!, o);
    const ratio = (a: Name, b: Name) => Number((result[a].perSecond / result[b].perSecond).toFixed(3));
    return {
      bench: 'admission',
      ...o,
      arms: result,
      ratios: {
        'service/function': ratio('service', 'function'),
        'api/function': ratio('api', 'function'),
        'whole/function': ratio('whole', 'function'),
        'function/insert': ratio('function', 'insert'),
        'service p99/p50': Number((result.service.p99 / result.service.p50).toFixed(2)),
        'api p99/p50': Number((result.api.p99 / result.api.p50).toFixed(2)),
      },
      deadlocks,
      profile,
    };
  } finally {
    for (const arm of arms) await arm.close();
    await world.close();
  }
}

/** As Postgres counts them (40P01), in all databases of the arms. */
async function deadlocksOf(arms: readonly Standing[]): Promise<number> {
  const [row] = await arms[0]!.db.query<{ n: number }>(
    `select sum(deadlocks)::int as n from pg_stat_database where datname like 'arm\\_%'`,
  );
  return row!.n;
}
