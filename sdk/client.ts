/**
 * The client of the API, driven by the table of operations: path, query and body are put together from one input, and
 * errors come back as the Problems that the API raised. Calls are repeated as the registry of errors says, always with
 * the same idempotency key, so that a repetition can never do a thing twice.
 */
import { ERRORS, type ErrorCode, isProblem, Problem, problem } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { type Clock, systemClock } from '#core/kernel/time.ts';
import { operationNamed } from '#core/operations.ts';

export interface ClientOptions {
  readonly baseUrl: string;
  readonly token: string;
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  /** A number in [0, 1); spreads repetitions. */
  readonly random?: () => number;
}

export interface CallOptions {
  /** Made up when the operation needs one and none is given. */
  readonly idempotencyKey?: string;
  /** Version that the thing must still have. */
  readonly ifMatch?: string;
  readonly signal?: AbortSignal;
}

export interface Client {
  /** `input`: fields of path, query and body side by side. Throws a Problem. */
  call(operation: string, input?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<unknown>;
}

const DEADLINE_MS = 30_000;
const TRIES_MAX = 5;
const PAUSE_MS_MAX = 4_000;

export function createClient(o: ClientOptions): Client {
  const send = o.fetch ?? fetch;
  const clock = o.clock ?? systemClock;
  const random = o.random ?? Math.random;

  async function call(
    name: string,
    input: Readonly<Record<string, unknown>> = {},
    options: CallOptions = {},
  ): Promise<unknown> {
    const operation = operationNamed(name);
    if (operation === undefined) throw problem('NOT_FOUND', `there is no operation ${name}`);
    const request = requestOf(o, operation, input, options);
    for (let attempt = 1; ; attempt++) {
      try {
        return await once(send, request.url, request.init, options.signal);
      } catch (e) {
        if (!isProblem(e) || !mayRepeat(e, operation) || attempt === TRIES_MAX || options.signal?.aborted === true)
          throw e;
        const { retryAfterSeconds } = (e.details ?? {}) as { retryAfterSeconds?: number };
        const ceiling = Math.min(PAUSE_MS_MAX, 100 * 2 ** attempt);
        await clock.sleep(
          retryAfterSeconds === undefined ? ceiling * random() : retryAfterSeconds * 1000 * (1 + random() / 4),
          options.signal,
        );
      }
    }
  }
  return { call };
}

/** Nothing to wait for: more of it is only to be had when somebody gives something back. */
const FINAL: readonly ErrorCode[] = ['CAPACITY_UNAVAILABLE', 'QUOTA_EXCEEDED', 'CONFIRMATION_REQUIRED'];

function mayRepeat(e: Problem, operation: Operation): boolean {
  if (e.spec.retry === 'never' || FINAL.includes(e.code)) return false;
  return operation.method === 'get' || operation.idempotent;
}

function requestOf(
  o: ClientOptions,
  operation: Operation,
  input: Readonly<Record<string, unknown>>,
  options: CallOptions,
) {
  const rest: Record<string, unknown> = { ...input };
  const path = operation.path.replaceAll(/\{(\w+)\}/g, (_, field: string) => {
    const value = rest[field];
    delete rest[field];
    if (typeof value === 'string' && value !== '') return encodeURIComponent(value);
    throw problem('INVALID_REQUEST', `${operation.name} needs ${field}`, {
      errors: [{ field, message: 'is part of the path' }],
    });
  });
  const queryFields = new Set(Object.keys((operation.query?.shape as object | undefined) ?? {}));
  const query = new URLSearchParams();
  const body: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(rest)) {
    if (value === undefined) continue;
    if (operation.method === 'get' || queryFields.has(field)) query.set(field, String(value));
    else body[field] = value;
  }
  const headers: Record<string, string> = { authorization: `Bearer ${o.token}`, accept: 'application/json' };
  if (operation.idempotent) headers['idempotency-key'] = options.idempotencyKey ?? crypto.randomUUID();
  if (options.ifMatch !== undefined) headers['if-match'] = `"${options.ifMatch}"`;
  const search = query.size === 0 ? '' : `?${query}`;
  const init: RequestInit = { method: operation.method.toUpperCase(), headers, redirect: 'error' };
  if (operation.method !== 'get') {
    headers['content-type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  return { url: `${o.baseUrl.replace(/\/+$/, '')}${path}${search}`, init };
}

async function once(
  send: typeof fetch,
  url: string,
  init: RequestInit,
  signal: AbortSignal | undefined,
): Promise<unknown> {
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  let answer: Response;
  let text: string;
  try {
    answer = await send(url, {
      ...init,
      signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
    });
    text = await answer.text();
  } catch (e) {
    if (deadline.aborted)
      throw new Problem('DEADLINE_EXCEEDED', `no answer within ${DEADLINE_MS / 1000} s`, undefined, e);
    throw new Problem(
      'UNAVAILABLE',
      `${new URL(url).origin} does not answer: ${reason(e)}`,
      { retryAfterSeconds: 1 },
      e,
    );
  }
  if (answer.ok) return text === '' ? undefined : parsed(text, answer);
  throw problemOf(parsed(text, answer), answer);
}

const reason = (e: unknown) =>
  e instanceof Error ? ((e.cause as Error | undefined)?.message ?? e.message) : String(e);

function parsed(text: string, answer: Response): unknown {
  try {
    return JSON.parse(text);
  } catch (e) {
    throw new Problem(
      'UNAVAILABLE',
      `HTTP ${answer.status} without JSON: not a Better Compute API?`,
      { retryAfterSeconds: 1 },
      e,
    );
  }
}

/** The Problem that the API raised, with its details. A code that this client does not know becomes INTERNAL. */
function problemOf(body: unknown, answer: Response): Problem {
  const {
    type: _t,
    title: _i,
    status: _s,
    code,
    detail,
    wayOut: _w,
    retry: _r,
    ...details
  } = body as Record<string, unknown>;
  const known = typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'INTERNAL';
  return new Problem(known, typeof detail === 'string' ? detail : `HTTP ${answer.status}`, details as never);
}
