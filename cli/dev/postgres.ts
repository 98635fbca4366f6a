/**
 * A real Postgres on this machine, from the binaries of the npm package for this platform. Nothing is installed
 * outside the given folder, except as root: the server refuses to run as root, so then it runs as nobody, from a copy
 * of the binaries and with data where nobody may go (see postgres-places.ts).
 *
 * It listens on the loopback address alone, asks for a password, and stops when this process ends for whatever reason.
 */
import { execFile } from 'node:child_process';
import { chownSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openPg } from '#plugins/database/node-postgres.ts';
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts';
import { freePort } from './ports.ts';
import { type Places, prepareBinaries, prepareDataDir, temporaryHome } from './postgres-places.ts';
import { stopStaleServer } from './postgres-stale.ts';
import { untilLine } from './process-output.ts';

export interface PostgresOptions {
  /** Holds the data (or, as root, a link to it). Made if missing. Undefined: a temporary folder that goes with the server. */
  readonly stateDir?: string;
  /** 0 or undefined takes a free one. */
  readonly port?: number;
  readonly password?: string;
  /** False: making the data folder forces nothing to disk. For tests. */
  readonly sync?: boolean;
  readonly maxConnections?: number;
  readonly onLog?: (line: string) => void;
}

export interface PostgresServer {
  /** Connection string of the database `better_compute`. */
  readonly url: string;
  readonly port: number;
  readonly process: GuardedProcess;
  urlOf(database: string): string;
  stop(): Promise<void>;
}

const DATABASE = 'better_compute';
const START_SECONDS = 60;
/** Data that will be deleted need not be forced to disk. */
const TEMPORARY_SETTINGS = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off'];

const isReady = (line: string) => line.includes('database system is ready to accept connections') || undefined;

export async function startPostgres(o: PostgresOptions): Promise<PostgresServer> {
  const binaries = prepareBinaries();
  const temporary = o.stateDir === undefined ? temporaryHome(binaries.owner) : undefined;
  const dataDir = temporary === undefined ? prepareDataDir(o.stateDir!, binaries.owner) : join(temporary, 'data');
  const places = { ...binaries, dataDir };
  const password = o.password ?? passwordIn(places);
  await stopStaleServer(dataDir);
  if (!existsSync(join(dataDir, 'PG_VERSION'))) {
    try {
      await initialise(places, password, (o.sync ?? true) && temporary === undefined);
    } catch (e) {
      if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true });
      throw e;
    }
  }
  const port = o.port || (await freePort());

  const settings = [
    `port=${port}`,
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    `max_connections=${o.maxConnections ?? 200}`,
    'timezone=UTC',
    'log_timezone=UTC',
    // Nothing waits for ever, whoever the client is. Migrations lift it for themselves.
    'statement_timeout=60s',
    ...(temporary === undefined ? [] : TEMPORARY_SETTINGS),
  ];
  const server = spawnGuarded({
    command: places.binary('postgres'),
    args: ['-D', places.dataDir, ...settings.flatMap((s) => ['-c', s])],
    env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' },
    cwd: '/',
    // INT is the server's fast shutdown: it ends sessions and writes a checkpoint.
    stopSignal: 'INT',
    graceSeconds: 10,
    ...(places.owner ?? {}),
    ...(temporary === undefined ? {} : { removeAfter: temporary }),
  });

  const urlOf = (database: string) => `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  try {
    await untilLine(server, isReady, o.onLog ?? (() => {}), START_SECONDS);
    await createDatabase(urlOf('postgres'), DATABASE);
  } catch (e) {
    await server.stop();
    throw e;
  }
  return { url: urlOf(DATABASE), port, process: server, urlOf, stop: () => server.stop() };
}

/** The password lives beside the data that it opens, so that both go together. */
function passwordIn(places: Places): string {
  const file = `${places.dataDir}.password`;
  if (existsSync(file) && existsSync(join(places.dataDir, 'PG_VERSION'))) return readFileSync(file, 'utf8').trim();
  const password = Buffer.from(crypto.getRandomValues(new Uint8Array(18))).toString('base64url');
  writeFileSync(file, `${password}\n`, { mode: 0o600 });
  return password;
}

async function initialise(places: Places, password: string, sync: boolean): Promise<void> {
  const passwordFile = `${places.dataDir}.initial`;
  writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 });
  if (places.owner !== undefined) chownSync(passwordFile, places.owner.uid, places.owner.gid);
  try {
    // The built-in locale sorts by code point and is the same on every platform.
    await promisify(execFile)(
      places.binary('initdb'),
      [
        `--pgdata=${places.dataDir}`,
        '--username=postgres',
        '--auth=password',
        `--pwfile=${passwordFile}`,
        '--encoding=UTF8',
        '--locale=C',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        ...(sync ? [] : ['--no-sync']),
      ],
      { cwd: '/', timeout: START_SECONDS * 1_000, env: { ...process.env, LC_ALL: 'C' }, ...(places.owner ?? {}) },
    );
  } catch (e) {
    // A half-made folder would pass for a whole one at the next start.
    rmSync(places.dataDir, { recursive: true, force: true });
    throw new Error(`initdb failed: ${(e as { stderr?: string }).stderr || (e as Error).message}`, { cause: e });
  } finally {
    rmSync(passwordFile, { force: true });
  }
}

async function createDatabase(url: string, name: string): Promise<void> {
  const db = openPg(url, { max: 1 });
  try {
    const found = await db.query('select 1 from pg_database where datname = $1', [name]);
    if (found.length === 0) await db.query(`create database ${name}`);
  } finally {
    await db.close();
  }
}
