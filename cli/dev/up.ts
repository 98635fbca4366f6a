/**
 * A whole control plane on this machine: Postgres, migrations, the first tenant, the edge, a gateway and, if wanted,
 * simulated machines. `better-compute dev`, the demo and the end-to-end tests start it by this function.
 *
 * State stays in one private folder; a second start on it goes on where the first one ended. When this process ends,
 * for whatever reason, everything it started ends.
 */
import { chmodSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isProblem } from '#core/kernel/errors.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { bootstrapIam } from '#plugins/iam/bootstrap.ts';
import { type Client, createClient } from '#sdk/client.ts';
import { bcdChild, edgeChild, gatewayChild, postgresChild } from './children.ts';
import { migrateProduct } from './migrations.ts';
import { rememberedPorts } from './ports.ts';
import { keep, type LocalSecrets, localSecrets, readSecret, TRUST_DOMAIN } from './secrets.ts';
import { lockStateDir } from './state-lock.ts';
import { type Log, Supervisor } from './supervisor.ts';

export interface Ports {
  readonly postgres: number;
  readonly api: number;
  readonly gateway: number;
  /** Where `bcd join` reaches the gateway without a certificate yet. */
  readonly join: number;
}

export interface UpOptions {
  readonly stateDir: string;
  readonly ports?: Partial<Ports>;
  /** So many simulated machines. */
  readonly sim?: number;
  readonly region?: string;
  readonly log?: Log;
}

export interface Running {
  readonly apiUrl: string;
  readonly databaseUrl: string;
  readonly ports: Ports;
  readonly stateDir: string;
  readonly secrets: LocalSecrets;
  readonly operatorToken: string;
  /** Owner of the organisation that the first start makes, and that organisation. */
  readonly tenantToken: string;
  readonly tenantId: string;
  /** True when this start made the token: the one time to show it. */
  readonly firstStart: boolean;
  readonly supervisor: Supervisor;
  stop(): Promise<void>;
}

const PORT_NAMES = ['postgres', 'api', 'gateway', 'join'] as const;
const OPERATOR_TOKEN = 'operator-token';
const TENANT_TOKEN = 'tenant-token';
const TENANT_ID = 'tenant-id';

export async function startAll(o: UpOptions): Promise<Running> {
  const stateDir = resolve(o.stateDir);
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  chmodSync(stateDir, 0o700);
  const lock = lockStateDir(stateDir);
  const supervisor = new Supervisor(stateDir, o.log ?? (() => {}));
  const stop = async () => {
    await supervisor.stop();
    lock.release();
  };
  try {
    const secrets = await localSecrets(stateDir);
    const ports = await rememberedPorts(join(stateDir, 'ports.json'), PORT_NAMES, o.ports);
    let databaseUrl = '';
    await supervisor.add(
      postgresChild(stateDir, ports.postgres, (url) => {
        databaseUrl = url;
      }),
    );
    const firstStart = await prepareDatabase(databaseUrl, stateDir);
    const apiUrl = `http://127.0.0.1:${ports.api}`;
    await supervisor.add(
      edgeChild(stateDir, ports.api, {
        DATABASE_URL: databaseUrl,
        CA_CERT_PEM: secrets.caCertPem,
        CA_KEY_PEM: secrets.caKeyPem,
        TRUST_DOMAIN,
        PUBLIC_URL: apiUrl,
        GATEWAY_TOKEN: secrets.gatewayToken,
        IAM_MODE: 'embedded',
        JOIN_ADDRESS: `127.0.0.1:${ports.join}`,
        ALLOW_PRIVATE_WEBHOOKS: 'loopback',
      }),
    );
    await supervisor.add(
      gatewayChild(secrets, {
        databaseUrl,
        apiUrl,
        gatewayPort: ports.gateway,
        joinPort: ports.join,
        region: o.region ?? 'local',
      }),
    );
    const secret = (name: string) => readSecret(stateDir, name).trim();
    const running = {
      apiUrl,
      databaseUrl,
      ports,
      stateDir,
      secrets,
      operatorToken: secret(OPERATOR_TOKEN),
      tenantToken: secret(TENANT_TOKEN),
      tenantId: secret(TENANT_ID),
      firstStart,
      supervisor,
      stop,
    };
    if (o.sim !== undefined && o.sim > 0) await addSimulatedMachines(running, o.sim);
    return running;
  } catch (e) {
    await stop();
    throw e;
  }
}

/** True when the tokens were made now. */
async function prepareDatabase(url: string, stateDir: string): Promise<boolean> {
  const db = openPg(url, { max: 2, applicationName: 'dev' });
  try {
    await migrateProduct(db);
    // Started by hand: that it was away until now is known, and no jump of the clock.
    await db.query('select clock_acknowledge()');
    const made = await bootstrapIam(db, { host: '127.0.0.1' });
    if (made.operatorToken === undefined || made.tenantToken === undefined) return false;
    keep(stateDir, OPERATOR_TOKEN, made.operatorToken);
    keep(stateDir, TENANT_TOKEN, made.tenantToken);
    keep(stateDir, TENANT_ID, made.tenantId);
    return true;
  } finally {
    await db.close();
  }
}

const SIM_SITE = 'local';
const SIM_POOL = 'sim';
const SIM_TOKEN_SECONDS = 30 * 86_400;

/** A site and pool for simulated machines, offered to the organisation, and `bcd sim` with a join token for them. */
async function addSimulatedMachines(running: Running, machines: number): Promise<void> {
  const client = createClient({ baseUrl: running.apiUrl, token: running.operatorToken });
  const site = await ensure(client, 'sites', SIM_SITE, {});
  const pool = await ensure(client, 'pools', SIM_POOL, { siteId: site, gpuModel: 'h100' });
  await client
    .call(
      'offers.create',
      { poolId: pool, tenantId: running.tenantId, quota: { gpu: machines * 8 } },
      { idempotencyKey: `dev-offer-${machines}` },
    )
    .catch((e: unknown) => {
      // Offered at an earlier start.
      if (!isProblem(e) || e.code !== 'CONFLICT') throw e;
    });
  const made = (await client.call('joinTokens.create', {
    poolId: pool,
    ttlSeconds: SIM_TOKEN_SECONDS,
    maxUses: machines,
  })) as { token: string };
  await running.supervisor.add(
    bcdChild(
      'bcd-sim',
      [
        'sim',
        String(machines),
        '--gateway',
        `127.0.0.1:${running.ports.join}`,
        '--ca-file',
        join(running.stateDir, 'ca.pem'),
        '--state-dir',
        join(running.stateDir, 'sim'),
      ],
      { BCD_JOIN_TOKEN: made.token },
    ),
  );
}

/** The id of the thing of this name, made if it is not there. */
async function ensure(client: Client, collection: 'sites' | 'pools', name: string, more: object): Promise<string> {
  const { items } = (await client.call(`${collection}.list`, { limit: 200 })) as {
    items: { id: string; name: string }[];
  };
  const found = items.find((i) => i.name === name);
  if (found !== undefined) return found.id;
  return ((await client.call(`${collection}.create`, { name, ...more })) as { id: string }).id;
}
