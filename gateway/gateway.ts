/**
 * A gateway put together: two ports (sessions under mutual TLS, joins under the gateway's certificate alone), the loops
 * that keep books and sessions in line, and an orderly end. All state is soft: killed at any instant, it costs the
 * machines one reconnect.
 */
import type { Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { type Clock, systemClock } from '#core/kernel/time.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { Join } from '#proto/gen/bettercompute/v1/join_pb.js';
import { Session as SessionService } from '#proto/gen/bettercompute/v1/session_pb.js';
import { FRAME_LIMITS, serviceDefinition } from '#proto/grpc.ts';
import type { GatewayContext } from '#services/sessions/index.ts';
import { serveAdmin } from './admin.ts';
import { ApiClient } from './api-client.ts';
import { servedChain } from './chain.ts';
import type { GatewayConfig } from './config.ts';
import { Delivery } from './delivery/deliver.ts';
import { listenForHints } from './delivery/hints.ts';
import { joinService } from './join/service.ts';
import { LeaseKeeper } from './lease.ts';
import { PausedListener } from './session/listener.ts';
import { watchLiveness } from './session/liveness.ts';
import { Registry } from './session/registry.ts';
import type { SessionCall } from './session/session.ts';
import { HEARTBEAT_SECONDS, LEASE_SECONDS, type StreamDeps, serveStream } from './session/stream.ts';
import { WorkSlots } from './session/work-slots.ts';

export interface GatewayOptions {
  readonly clock?: Clock;
  readonly log?: StreamDeps['log'];
  /** A newer process took over this gateway's id. */
  readonly onFenced?: () => void;
  readonly leaseSeconds?: number;
  readonly heartbeatSeconds?: number;
}

export interface RunningGateway {
  readonly sessionPort: number;
  readonly joinPort: number;
  readonly adminPort: number | undefined;
  /** Undefined when ready, else why not. */
  notReady(): string | undefined;
  metrics(): Readonly<Record<string, number>>;
  /** Says goodbye to every session and gives the lease up. */
  stop(): Promise<void>;
}

const KEEPALIVE = {
  // A peer that vanished is noticed within its lease, not when TCP gives up. Heartbeats are checked besides.
  'grpc.keepalive_time_ms': 15_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.max_concurrent_streams': 4,
} as const;
const SESSION_IDLE_MS = 30_000;
const JOIN_IDLE_MS = 60_000;
const QUEUED_MAX = 2_000;
const GOODBYE_MS = 500;

export async function startGateway(config: GatewayConfig, options: GatewayOptions = {}): Promise<RunningGateway> {
  const clock = options.clock ?? systemClock;
  const log = options.log ?? (() => {});
  const leaseSeconds = options.leaseSeconds ?? LEASE_SECONDS;
  const heartbeatSeconds = options.heartbeatSeconds ?? HEARTBEAT_SECONDS;
  const stopping = new AbortController();
  const { signal } = stopping;
  let databaseFailures = 0;
  const onError = (e: unknown) => {
    databaseFailures++;
    log('warn', 'a background task failed', { why: e instanceof Error ? e.message : String(e) });
  };

  const db = openPg(config.databaseUrl, {
    max: config.databaseConnections,
    applicationName: `gateway ${config.gatewayId}`,
    onConnectionLost: onError,
  });
  const api = new ApiClient({
    url: config.apiUrl.replace(/\/+$/, ''),
    token: config.gatewayToken,
    gatewayId: config.gatewayId,
    clock,
    onError: (e) => log('warn', 'a poke failed', { why: e instanceof Error ? e.message : String(e) }),
  });
  const books: GatewayContext = { db, gatewayId: config.gatewayId, poke: api.poke };
  const slots = new WorkSlots(Math.max(1, config.databaseConnections - 2), QUEUED_MAX, clock);
  const joinSlots = new WorkSlots(8, 200, clock);
  const registry = new Registry(leaseSeconds * 1000);
  const lease = new LeaseKeeper({
    db,
    gatewayId: config.gatewayId,
    clock,
    signal,
    onError,
    onFenced: () => options.onFenced?.(),
  });
  let addresses = config.addresses;

  const credentials = (checkClient: boolean) =>
    ServerCredentials.createSsl(
      checkClient ? Buffer.from(config.authoritiesPem) : null,
      [{ private_key: Buffer.from(config.privateKeyPem), cert_chain: Buffer.from(servedChain(config)) }],
      checkClient,
    );

  const sessions = new Server({ ...FRAME_LIMITS, ...KEEPALIVE });
  const sessionInjector = sessions.createConnectionInjector(credentials(true));
  const listener = new PausedListener({
    host: config.bindAddress,
    port: config.sessionPort,
    connectsPerSecond: config.connectsPerSecond,
    clock,
    admit: (socket) => sessionInjector.injectConnection(socket),
    idleMs: SESSION_IDLE_MS,
  });
  const delivery = new Delivery({ clock, registry, listener, books, onError, signal, onSwept: () => {} });
  const deps: StreamDeps = {
    clock,
    registry,
    listener,
    slots,
    books,
    api,
    leaseSeconds,
    heartbeatSeconds,
    addresses: () => addresses,
    gatewayEpoch: () => lease.epoch(),
    onOpened: (session) => delivery.hint(session.nodeId),
    log,
  };
  sessions.addService(serviceDefinition(SessionService), {
    open: (call: SessionCall) => serveStream(call, deps),
  });

  const joins = new Server({ ...FRAME_LIMITS, ...KEEPALIVE });
  joins.addService(serviceDefinition(Join), joinService({ api, slots: joinSlots, addresses: () => addresses, log }));
  const joinInjector = joins.createConnectionInjector(credentials(false));
  const joinListener = new PausedListener({
    host: config.bindAddress,
    port: config.joinPort,
    connectsPerSecond: config.connectsPerSecond,
    clock,
    admit: (socket) => joinInjector.injectConnection(socket),
    idleMs: JOIN_IDLE_MS,
  });

  const notReady = (): string | undefined => {
    if (signal.aborted) return 'stopping';
    return lease.fresh ? undefined : 'the database has not confirmed the lease of this gateway';
  };
  const metrics = () => ({
    sessions: registry.size,
    connections: listener.open,
    connections_waiting: listener.waiting,
    connections_accepted_total: listener.counters.accepted,
    connections_admitted_total: listener.counters.admitted,
    connections_turned_away_total: listener.counters.turnedAway,
    joins_waiting: joinSlots.queued,
    work_waiting: slots.queued,
    specs_delivered_total: delivery.counters.delivered,
    sessions_cut_total: delivery.counters.fenced,
    sessions_restored_total: delivery.counters.restored,
    background_failures_total: databaseFailures,
    ready: notReady() === undefined ? 1 : 0,
  });

  const loops = [
    lease.run(),
    delivery.run(),
    watchLiveness({ clock, registry, listener, books, onError, signal }),
    listenForHints({ databaseUrl: config.databaseUrl, clock, signal, onError, onHint: (id) => delivery.hint(id) }),
    sweepIdle(joinListener, clock, signal),
  ];
  const sessionPort = await listener.listen();
  const joinPort = await joinListener.listen();
  if (addresses.length === 0) addresses = [`${config.bindAddress}:${sessionPort}`];
  let admin: HttpServer | undefined;
  if (config.adminPort !== undefined) {
    admin = await serveAdmin(config.adminAddress, config.adminPort, { notReady, metrics });
  }

  return {
    sessionPort,
    joinPort,
    adminPort: admin === undefined ? undefined : (admin.address() as AddressInfo).port,
    notReady,
    metrics,
    async stop() {
      if (signal.aborted) return;
      stopping.abort();
      await Promise.all([listener.stopAccepting(), joinListener.stopAccepting()]);
      // Spread over the time in which another gateway can admit them all.
      const spreadMs = (registry.size / config.connectsPerSecond) * 1000;
      for (const session of registry.all()) {
        session.end('draining', 'the gateway stops', Math.round(250 + Math.random() * spreadMs));
      }
      await clock.sleep(GOODBYE_MS);
      listener.destroyAll();
      joinListener.destroyAll();
      sessions.forceShutdown();
      joins.forceShutdown();
      await Promise.all(loops);
      await new Promise<void>((resolve) => (admin === undefined ? resolve() : admin.close(() => resolve())));
      await db.close();
    },
  };
}

async function sweepIdle(listener: PausedListener, clock: Clock, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await clock.sleep(5_000, signal).catch(() => {});
    listener.sweep();
  }
}
