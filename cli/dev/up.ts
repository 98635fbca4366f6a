/**
 * A whole control plane on this machine: Postgres, migrations, the first tenant, the edge, a gateway and, if wanted,
 * simulated machines. `better-compute dev`, the demo and the end-to-end tests start it by this function.
 *
 * State stays in one private folder; a second start on it goes on where the first one ended. When this process ends,
 * for whatever reason, everything it started ends.
 */
import { chmodSync, existsSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { openPg, type PgDatabase } from '#plugins/database/node-postgres.ts';
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
  /** True when this start made the token: the one time to show it. */
  readonly firstStart: boolean;
  readonly supervisor: Supervisor;
  stop(): Promise<void>;
}

const PORT_NAMES = ['postgres', 'api', 'gateway', 'join'] as const;
const OPERATOR_TOKEN = 'operator-token';

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
    const operatorToken = readSecret(stateDir, OPERATOR_TOKEN).trim();
    const running = { apiUrl, databaseUrl, ports, stateDir, secrets, operatorToken, firstStart, supervisor, stop };
    if (o.sim !== undefined && o.sim > 0) await addSimulatedMachines(running, o.sim);
    return running;
  } catch (e) {
    await stop();
    throw e;
  }
}

/** True when the operator's token was made now. */
async function prepareDatabase(url: string, stateDir: string): Promise<boolean> {
  const db = openPg(url, { max: 2, applicationName: 'dev' });
  try {
    await migrateProduct(db);
    if (existsSync(join(stateDir, OPERATOR_TOKEN))) return false;
    keep(stateDir, OPERATOR_TOKEN, await bootstrapOperator(db));
    return true;
  } finally {
    await db.close();
  }
}

/** Makes the platform's own tenant and its operator, and gives the operator's token. */
async function bootstrapOperator(_db: PgDatabase): Promise<string> {
  throw new Error('there is no identity service to make an operator in yet');
}

/** Registers a site and pool, makes a join token and starts `bcd sim`. */
async function addSimulatedMachines(running: Running, machines: number): Promise<void> {
  const args = await simulatorArguments(running, machines);
  await running.supervisor.add(bcdChild('bcd-sim', args));
}

async function simulatorArguments(_running: Running, _machines: number): Promise<string[]> {
  throw new Error('there is no simulator to start yet');
}
