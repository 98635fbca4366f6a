/** The Worker: everything that answers over HTTP, consumes the queues and keeps the shards awake, wired together. */
import { waitUntil } from 'cloudflare:workers';
import { Hono } from 'hono';
import { getPath } from 'hono/utils/url';
import { iamCatalog } from '#core/iam/catalog.ts';
import type { IamPort } from '#core/iam/port.ts';
import { toBase64 } from '#core/join/bytes.ts';
import type { Database } from '#core/kernel/database.ts';
import type { Problem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import { IAM_ACTIONS_OF_COMPUTE } from '#core/operations.ts';
import { read } from '#db/mutate.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import { iamFace } from '#plugins/iam/http-face.ts';
import { remoteIam } from '#plugins/iam/remote.ts';
import type { Services } from '#services/context.ts';
import { openAuthority } from '#services/join/index.ts';
import { apiApp } from './api/app.ts';
import { HANDLERS } from './api/handlers.ts';
import { internalJoin } from './api/internal-join.ts';
import { type Subscribe, watchStream } from './api/watch.ts';
import { type DurableEnv, openDatabase } from './durable/bindings.ts';
import { consoleLog } from './durable/console-log.ts';
import { onCron } from './durable/cron.ts';
import { pokeShards } from './durable/shard.ts';
import type { WorkerSettings } from './settings.ts';
import { consumeDeadLetters, consumeDeliveries, webhookPolicy } from './webhooks/consumer.ts';

export { Hub } from './durable/hub.ts';
export { Lease } from './durable/lease.ts';
export { Shard } from './durable/shard.ts';

export interface Env extends DurableEnv, WorkerSettings {}

const log = consoleLog('api');
const DEAD_LETTERS = 'webhook-deliveries-dead';

function report(e: Problem, requestId: string): void {
  const cause = e.cause instanceof Error ? (e.cause.stack ?? e.cause.message) : e.cause;
  log.error({ requestId, code: e.code, cause: String(cause ?? '') }, e.message);
}

/** Tells the tenant's hub object that somebody listens; what it says is only that there is something to read. */
function hubSubscription(env: Env): Subscribe {
  return async (tenantId, onPoke) => {
    const answer = await env.HUB.getByName(tenantId).fetch('https://hub/', { headers: { upgrade: 'websocket' } });
    const socket = answer.webSocket;
    if (socket === null) return () => {};
    socket.accept();
    socket.addEventListener('message', onPoke);
    return () => socket.close();
  };
}

/** The identity service: our own, served here as well, or a remote one that this Worker only asks. */
function identityService(env: Env, db: Database): { iam: IamPort; face?: Hono } {
  if (env.IAM_MODE === 'remote') {
    if (!env.IAM_URL || !env.IAM_ROOT_TENANT) throw new Error('IAM_MODE=remote needs IAM_URL and IAM_ROOT_TENANT');
    const iam = remoteIam({
      baseUrl: env.IAM_URL,
      clock: systemClock,
      rootTenantId: env.IAM_ROOT_TENANT,
      ...(env.IAM_TOKEN === undefined ? {} : { serviceToken: env.IAM_TOKEN }),
    });
    return { iam };
  }
  const options = { clock: systemClock, catalog: iamCatalog(IAM_ACTIONS_OF_COMPUTE) };
  const onError = (e: unknown) => log.error({ cause: String(e) }, 'identity service');
  return { iam: embeddedIam(db, options), face: iamFace(db, { ...options, onError }) };
}

/** One isolate's wiring. Nothing in it outlives a request but values. */
async function wire(env: Env): Promise<(request: Request) => Response | Promise<Response>> {
  const db = openDatabase(env);
  const { iam, face } = identityService(env, db);
  const seed = new TextEncoder().encode(`better-compute cursors ${env.GATEWAY_TOKEN}`);
  const cursorKey = new Uint8Array(await crypto.subtle.digest('SHA-256', seed));
  const ca = await openAuthority({
    trustDomain: env.TRUST_DOMAIN,
    certificatePem: env.CA_CERT_PEM,
    privateKeyPem: env.CA_KEY_PEM,
  });
  // Of the public key, so that a renewed certificate of the same authority keeps its pin.
  const caPin = `sha256/${toBase64(await crypto.subtle.digest('SHA-256', ca.certificate.publicKey.rawData))}`;

  const poke = () => waitUntil(pokeShards(env));
  const services: Services = {
    db,
    iam,
    poke,
    cursorKey,
    webhookAddresses: webhookPolicy(env),
    ...(env.JOIN_ADDRESS === undefined ? {} : { joinEndpoint: { gateway: env.JOIN_ADDRESS, caPin } }),
  };
  const internal = new Hono().route(
    '/internal',
    internalJoin({ db, ca, gatewayToken: env.GATEWAY_TOKEN, poke, report }),
  );
  const api = apiApp({
    services,
    handlers: HANDLERS,
    streams: { watch: watchStream(hubSubscription(env)) },
    publicUrl: env.PUBLIC_URL,
    ready: async () => void (await read(db, 'select 1')),
    toTheEnd: waitUntil,
    report,
  });
  // Each has its own conventions for errors, so a request meets exactly one of them.
  return (request) => {
    const pathname = getPath(request);
    if (pathname.startsWith('/internal/')) return internal.fetch(request);
    if (pathname.startsWith('/api/iam/') && face !== undefined) return face.fetch(request);
    return api.fetch(request);
  };
}

let wired: { readonly env: Env; readonly handle: Awaited<ReturnType<typeof wire>> } | undefined;

/** Not a promise that requests share: the one that began it may be cut off, and all others would wait for ever. */
async function wiringOf(env: Env): Promise<Awaited<ReturnType<typeof wire>>> {
  if (wired?.env !== env) wired = { env, handle: await wire(env) };
  return wired.handle;
}

export default {
  async fetch(request, env): Promise<Response> {
    return (await wiringOf(env))(request);
  },
  async queue(batch, env): Promise<void> {
    if (batch.queue === DEAD_LETTERS) consumeDeadLetters(batch);
    else await consumeDeliveries(batch, env);
  },
  /** Sets the alarm of every shard again, so that a lost one costs at most a minute. */
  async scheduled(_event, env): Promise<void> {
    await onCron(env);
  },
} satisfies ExportedHandler<Env>;
