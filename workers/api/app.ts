/**
 * The REST API: every operation of the table, mounted the same way. A request is parsed, authenticated and handed to
 * one handler; what the handler throws becomes a problem. Nothing here knows a capability.
 */
import { type Context, Hono } from 'hono';
import { ERRORS, type Problem, problem, problemBody, toProblem } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { within } from '#core/kernel/time.ts';
import { OPERATIONS } from '#core/operations.ts';
import { PolicyChanged } from '#db/sql-problem.ts';
import { type Handler, type RequestContext, requestContext, type Services } from '#services/context.ts';
import { orStoredAnswer } from '#services/verbs.ts';
import { openApiDocument } from './openapi.ts';
import { errorsPage, referencePage } from './pages.ts';
import { bearerOf, idempotencyKeyOf, ifMatchOf, inputOf, requestIdOf, traceparentOf } from './request.ts';
import { Semaphore } from './semaphore.ts';

export interface ApiDeps {
  readonly services: Services;
  readonly handlers: Readonly<Record<string, Handler<Operation>>>;
  /** Answers the operations that stream. */
  readonly streams: Readonly<
    Record<string, (ctx: RequestContext, input: Record<string, unknown>, request: Request) => Promise<Response>>
  >;
  readonly publicUrl: string;
  /** Resolves when the database answers. */
  readonly ready: () => Promise<void>;
  /** Lets a write come to its end although its caller hung up: it may be in the middle of a transaction. */
  readonly toTheEnd?: (work: Promise<unknown>) => void;
  /** Told of errors that are ours. */
  readonly report?: (e: Problem, requestId: string) => void;
}

const DEADLINE_MS = 25_000;
/** Writes at once in an isolate, and those that may wait. Who is inside is answered before its place is given away. */
const WRITES = { atOnce: 8, waitingMax: 200, waitMs: 5_000, holdMs: DEADLINE_MS + 5_000 };
/** Times that a decision is made again when policies move under it. */
const DECISIONS_MAX = 3;

type Vars = { Variables: { requestId: string } };

export function apiApp(deps: ApiDeps): Hono<Vars> {
  const app = new Hono<Vars>();
  const writes = new Semaphore(WRITES);
  const operations = Object.values(OPERATIONS) as unknown as Operation[];

  app.use('*', async (c, next) => {
    c.set('requestId', requestIdOf(c.req.raw));
    await next();
    c.header('x-request-id', c.get('requestId'));
  });
  app.onError((e, c) => problemResponse(c, e, deps));
  app.notFound((c) => problemResponse(c, unmatched(c, operations), deps));

  app.get('/healthz', (c) => c.json({ ok: true }));
  app.get('/readyz', async (c) => {
    await deps.ready();
    return c.json({ ok: true });
  });
  let document: object | undefined;
  app.get('/v1/openapi.json', (c) => {
    document ??= openApiDocument(deps.publicUrl);
    return c.json(document);
  });
  app.get('/v1/docs', (c) => c.html(referencePage()));
  app.get('/v1/errors', (c) => c.html(errorsPage()));

  for (const operation of operations) {
    app.on(operation.method.toUpperCase(), operation.path.replaceAll(/\{(\w+)\}/g, ':$1'), (c) => answer(c, operation));
  }

  async function answer(c: Context<Vars>, operation: Operation): Promise<Response> {
    const request = c.req.raw;
    const requestId = c.get('requestId');
    const sourceIp = request.headers.get('cf-connecting-ip') ?? undefined;
    const meta = { requestId, ...(sourceIp === undefined ? {} : { sourceIp }) };
    const caller = await deps.services.iam.authenticate(bearerOf(request), meta);
    const input = await inputOf(c, operation);
    const optional = {
      traceparent: traceparentOf(request),
      idempotencyKey: idempotencyKeyOf(request, operation),
      ifMatch: ifMatchOf(request),
    };
    const ctx = requestContext(deps.services, {
      caller,
      ...meta,
      ...Object.fromEntries(Object.entries(optional).filter(([, v]) => v !== undefined)),
    });
    if (operation.stream !== undefined) return deps.streams[operation.name]!(ctx, input, request);
    const handle = deps.handlers[operation.name]!;
    const work = () => {
      const answered = orStoredAnswer(ctx, operation.name, input, () => decided(() => handle(ctx, input)));
      return within(DEADLINE_MS, answered, late);
    };
    const write = () => {
      const running = work();
      deps.toTheEnd?.(running.catch(() => {}));
      return running;
    };
    const body = operation.method === 'get' ? await work() : await writes.run(write);
    const { version } = (body ?? {}) as { version?: number };
    if (operation.etag === true && version !== undefined) c.header('etag', `"${version}"`);
    c.header('cache-control', 'no-store');
    return c.json(body as object, operation.successStatus as 200);
  }

  return app;
}

/** Runs the handler again when the policies moved between its decision and its commit. */
async function decided<T>(handle: () => Promise<T>): Promise<T> {
  for (let n = 1; ; n++) {
    try {
      return await handle();
    } catch (e) {
      if (!(e instanceof PolicyChanged)) throw e;
      if (n === DECISIONS_MAX) throw problem('CONTENTION', 'the policies keep changing');
    }
  }
}

const late = () => problem('DEADLINE_EXCEEDED', `not done after ${DEADLINE_MS / 1000} s`);

function problemResponse(c: Context<Vars>, e: unknown, deps: ApiDeps): Response {
  const p = toProblem(e);
  const requestId = c.get('requestId');
  if (p.spec.http >= 500) deps.report?.(p, requestId);
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
    'x-request-id': requestId,
  };
  const details = p.details as { retryAfterSeconds?: number; allow?: string } | undefined;
  if (details?.retryAfterSeconds !== undefined) headers['retry-after'] = String(details.retryAfterSeconds);
  if (p.code === 'UNAUTHENTICATED') headers['www-authenticate'] = 'Bearer';
  if (p.code === 'METHOD_NOT_ALLOWED') headers['allow'] = allowedMethods(c);
  return new Response(JSON.stringify(problemBody(p, requestId)), { status: ERRORS[p.code].http, headers });
}

const pattern = (path: string) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`);

function allowedMethods(c: Context): string {
  const fitting = (Object.values(OPERATIONS) as unknown as Operation[]).filter((o) => pattern(o.path).test(c.req.path));
  return [...new Set(fitting.map((o) => o.method.toUpperCase()))].join(', ');
}

function unmatched(c: Context, operations: readonly Operation[]): Problem {
  if (operations.some((o) => pattern(o.path).test(c.req.path))) {
    return problem('METHOD_NOT_ALLOWED', `${c.req.path} takes ${allowedMethods(c)}, not ${c.req.method}`);
  }
  return problem('NOT_FOUND', `there is nothing at ${c.req.path}; see /v1/docs`);
}
