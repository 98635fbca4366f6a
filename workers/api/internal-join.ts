/**
 * Admissions, for gateways only: they end the machines' connections and hand the questions on, holding no key
 * themselves. Guarded by a bearer secret that gateways and Workers share; never reachable with a tenant's credential.
 */
import { Hono } from 'hono';
import { z } from 'zod';
import { JoinRequest, parseEvidence, RenewRequest } from '#core/join/evidence.ts';
import { equalSecrets } from '#core/join/token.ts';
import type { Database } from '#core/kernel/database.ts';
import { type Problem, problem, problemBody, toProblem } from '#core/kernel/errors.ts';
import { joinTokenAttestor } from '#plugins/attestors/join-token.ts';
import { x509popAttestor } from '#plugins/attestors/x509pop.ts';
import { type Authority, challenge, type JoinContext, type JoinOrigin, join, renew } from '#services/join/index.ts';

export interface InternalJoinDeps {
  readonly db: Database;
  readonly ca: Authority;
  readonly gatewayToken: string;
  readonly poke?: JoinContext['poke'];
  /** Told of errors that are ours. */
  readonly report?: (e: Problem, requestId: string) => void;
}

const BODY_BYTES_MAX = 256 * 1024;

/** What a gateway's commit left behind for the reconcilers. */
const Wakes = z.object({ wakes: z.array(z.object({ kind: z.string().max(64), key: z.string().max(256) })).max(1000) });

/** Routes `/join`, `/challenge`, `/renew` and `/poke`, to be mounted under `/internal`. */
export function internalJoin(deps: InternalJoinDeps): Hono {
  const ctx: JoinContext = {
    db: deps.db,
    authority: deps.ca,
    attestors: [joinTokenAttestor, x509popAttestor],
    ...(deps.poke === undefined ? {} : { poke: deps.poke }),
  };
  const app = new Hono();

  const originOf = (request: Request): JoinOrigin => ({
    requestId: request.headers.get('x-request-id') ?? crypto.randomUUID(),
    ...optional('sourceIp', request.headers.get('x-source-ip')),
    ...optional('gateway', request.headers.get('x-gateway-id')),
  });

  app.onError((e, c) => {
    const p = toProblem(e);
    const { requestId } = originOf(c.req.raw);
    if (p.spec.http >= 500) deps.report?.(p, requestId);
    const body = JSON.stringify(problemBody(p, requestId));
    return new Response(body, { status: p.spec.http, headers: { 'content-type': 'application/problem+json' } });
  });

  app.use('*', async (c, next) => {
    const given = /^Bearer (\S+)$/.exec(c.req.header('authorization') ?? '')?.[1] ?? '';
    // An empty secret is a configuration that was forgotten; it must open nothing.
    if (deps.gatewayToken === '' || !equalSecrets(given, deps.gatewayToken)) {
      throw problem('UNAUTHENTICATED', 'this is for gateways, with their own credential');
    }
    await next();
  });

  app.post('/challenge', async (c) => c.json(await challenge(ctx)));
  app.post('/join', async (c) => {
    const request = parseEvidence(JoinRequest, await body(c.req.raw));
    return c.json(await join(ctx, request, originOf(c.req.raw)));
  });
  app.post('/renew', async (c) => {
    const request = parseEvidence(RenewRequest, await body(c.req.raw));
    return c.json(await renew(ctx, request, originOf(c.req.raw)));
  });
  app.post('/poke', async (c) => {
    deps.poke?.(parseEvidence(Wakes, await body(c.req.raw)).wakes);
    return c.json({});
  });
  return app;
}

function optional<K extends string>(key: K, value: string | null): { [k in K]?: string } {
  return value === null ? {} : ({ [key]: value.slice(0, 256) } as { [k in K]?: string });
}

async function body(request: Request): Promise<unknown> {
  const text = await request.text();
  if (text.length > BODY_BYTES_MAX) {
    throw problem('PAYLOAD_TOO_LARGE', 'the body is too large', { limitBytes: BODY_BYTES_MAX });
  }
  try {
    return JSON.parse(text);
  } catch {
    throw problem('INVALID_REQUEST', 'the body is not JSON', { errors: [{ field: 'body', message: 'expected JSON' }] });
  }
}
