/**
 * The road between machines and books for tests: the admission routes behind a real HTTP server, a real gateway with
 * real certificates in this process, and machines that are the daemon's own core on fake hardware.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { FakeHands } from '#bcd/hands/fake/hands.ts';
import { type Identity, loadIdentity } from '#bcd/journal/identity.ts';
import { type Journal, openJournal } from '#bcd/journal/journal.ts';
import { type DaemonOptions, runDaemon } from '#bcd/session/daemon.ts';
import { join } from '#bcd/session/join.ts';
import { type KeyPair, makeAuthority, makeGatewayCertificate, pinOf } from '#cli/dev/certificates.ts';
import { makeJoinToken } from '#core/join/token.ts';
import { newId } from '#core/kernel/ids.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { GatewayConfig } from '#gateway/config.ts';
import { type GatewayOptions, type RunningGateway, startGateway } from '#gateway/gateway.ts';
import { openAuthority } from '#services/join/index.ts';
import { internalJoin } from '#workers/api/internal-join.ts';
import { type TestDatabase, testDatabase } from './database.ts';

export interface Road {
  readonly t: TestDatabase;
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly ca: KeyPair;
  readonly caPin: string;
  readonly api: { readonly url: string };
  readonly directory: string;
  gateway: RunningGateway;
  readonly config: GatewayConfig;
  /** Another gateway process of the same books; on the ports of `config` unless told otherwise. */
  start(config?: Partial<GatewayConfig>, options?: GatewayOptions): Promise<RunningGateway>;
  token(maxUses?: number): Promise<{ id: string; token: string }>;
  machine(number: number, part?: Partial<MachineOptions>): Promise<Machine>;
  /** Waits for a condition in the books. */
  until<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T>;
  close(): Promise<void>;
}

export interface MachineOptions {
  readonly token: string;
  readonly daemon: Partial<DaemonOptions>;
}

export interface Machine {
  readonly hands: FakeHands;
  readonly identity: Identity;
  readonly directory: string;
  readonly log: { level: string; message: string; about: Record<string, unknown> }[];
  readonly journal: Journal;
  /** Epochs of the sessions it was given. */
  readonly epochs: number[];
  stop(): Promise<void>;
}

const SECRET = 'the-gateways-secret';

export async function openRoad(options: GatewayOptions & { config?: Partial<GatewayConfig> } = {}): Promise<Road> {
  const t = await testDatabase({ max: 8 });
  const directory = await mkdtemp(joinPath(tmpdir(), 'road-'));
  const [tenantId, siteId, poolId] = [newId('tenant'), newId('site'), newId('pool')];
  await t.db.query("insert into sites (id, tenant_id, name) values ($1, $2, 'here')", [siteId, tenantId]);
  await t.db.query(
    "insert into pools (id, site_id, tenant_id, name, class, gpu_model) values ($1, $2, $3, 'p', 'metal-host', 'h100')",
    [poolId, siteId, tenantId],
  );
  const ca = await makeAuthority('test.fleet');
  const authority = await openAuthority({ trustDomain: 'test.fleet', ...ca });
  const app = internalJoin({ db: t.db, ca: authority, gatewayToken: SECRET });
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (d: Buffer) => parts.push(d));
    request.on('end', async () => {
      const answer = await app.request(request.url!.replace(/^\/internal/, ''), {
        method: request.method!,
        headers: request.headers as Record<string, string>,
        body: Buffer.concat(parts),
      });
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      response.end(Buffer.from(await answer.arrayBuffer()));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const api = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  const certificate = await makeGatewayCertificate(ca, ['localhost', '127.0.0.1']);
  const base: GatewayConfig = {
    databaseUrl: t.url,
    databaseConnections: 4,
    bindAddress: '127.0.0.1',
    sessionPort: 0,
    joinPort: 0,
    adminPort: undefined,
    adminAddress: '127.0.0.1',
    addresses: [],
    certificatePem: certificate.certificatePem,
    privateKeyPem: certificate.privateKeyPem,
    authoritiesPem: ca.certificatePem,
    apiUrl: api.url,
    gatewayToken: SECRET,
    region: 'test',
    gatewayId: 'test-1',
    connectsPerSecond: 200,
    ...options.config,
  };
  const gateways: RunningGateway[] = [];
  const machines: Machine[] = [];
  const launch = async (part: Partial<GatewayConfig>, o: GatewayOptions) => {
    const gateway = await startGateway({ ...base, ...part }, o);
    gateways.push(gateway);
    return gateway;
  };
  const gateway = await launch({}, options);
  const config = { ...base, sessionPort: gateway.sessionPort, joinPort: gateway.joinPort };

  const road: Road = {
    t,
    tenantId,
    siteId,
    poolId,
    ca,
    caPin: await pinOf(ca.certificatePem),
    api,
    directory,
    gateway,
    config,
    start: (part = {}, o = options) => launch({ ...config, ...part }, o),
    async token(maxUses = 1) {
      const made = makeJoinToken();
      await t.db.query(
        `insert into join_tokens (id, tenant_id, site_id, pool_id, secret_hash, max_uses, expires_at, created_by)
         values ($1, $2, $3, $4, $5, $6, compute_now() + interval '1 hour', 'me')`,
        [made.id, tenantId, siteId, poolId, made.secretHash, maxUses],
      );
      return made;
    },
    async machine(number, part = {}) {
      const machine = await startMachine(road, number, part);
      machines.push(machine);
      return machine;
    },
    async until(what, look) {
      for (let i = 0; i < 600; i++) {
        const found = await look();
        if (found !== undefined && found !== false) return found;
        await systemClock.sleep(50);
      }
      const logs = machines.flatMap((m) => m.log.slice(-5).map((l) => JSON.stringify(l)));
      throw new Error(`waited in vain until ${what}\n${logs.join('\n')}`);
    },
    async close() {
      await Promise.all(machines.map((m) => m.stop()));
      await Promise.all(gateways.map((g) => g.stop()));
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await t.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
  return road;
}

async function startMachine(road: Road, number: number, part: Partial<MachineOptions>): Promise<Machine> {
  const directory = joinPath(road.directory, `m${number}`);
  const hands = (part.daemon?.hands as FakeHands | undefined) ?? new FakeHands({ number, clock: systemClock });
  const log: Machine['log'] = [];
  const epochs: number[] = [];
  const identity =
    (await loadIdentity(directory)) ??
    (await join(
      {
        stateDirectory: directory,
        address: `127.0.0.1:${road.gateway.joinPort}`,
        trustPem: road.ca.certificatePem,
        inventory: await hands.collectInventory(),
        clock: systemClock,
      },
      { kind: 'token', token: part.token ?? (await road.token()).token },
    ));
  const journal = openJournal(joinPath(directory, 'journal.db'), { clock: systemClock });
  const stop = new AbortController();
  const running = runDaemon({
    hands,
    journal,
    identity,
    stateDirectory: directory,
    clock: systemClock,
    signal: stop.signal,
    log: (level, message, about = {}) => void log.push({ level, message, about }),
    reconnectCeilingMs: 1_500,
    ...part.daemon,
    onWelcome: (w) => void epochs.push(Number(w.epoch)),
  });
  let stopped: Promise<void> | undefined;
  return {
    hands,
    identity,
    directory,
    log,
    journal,
    epochs,
    stop() {
      stopped ??= (async () => {
        stop.abort();
        await running;
        journal.close();
      })();
      return stopped;
    },
  };
}
