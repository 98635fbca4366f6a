/**
 * One call to a remote identity service: POST, deadline, no redirects, bounded answer, envelope. An answer that cannot be
 * read is never a denial: it is IAM_UNAVAILABLE, and whoever asked is refused for that reason.
 */
import { z } from 'zod';
import { Problem, problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';

const ANSWER_MAX = 1024 * 1024;
const RETRY_WAIT_MAX_MS = 1_000;
const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;

export interface RemoteEndpoint {
  /** `https://iam.example.com/api/iam`, without a slash at the end. */
  readonly baseUrl: string;
  readonly clock: Clock;
  readonly deadlineMs: number;
  readonly fetch: typeof fetch;
  /** The header in which the service takes the end user's address from us. */
  readonly clientIpHeader?: string;
}

export interface CallMeta {
  readonly requestId?: string;
  readonly sourceIp?: string;
}

/** The service answered with one of its codes. */
export class RemoteRefusal extends Error {
  readonly code: string;
  readonly status: number;
  readonly retryAfterMs: number | undefined;
  constructor(code: string, status: number, message: string, retryAfterMs: number | undefined) {
    super(message);
    this.name = 'RemoteRefusal';
    this.code = code;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

const envelope = z.union([
  z.object({
    error: z.object({
      code: z.string().max(64),
      message: z.string().max(4096),
      retryAfterMs: z.number().min(0).optional(),
    }),
  }),
  z.object({ data: z.unknown() }).refine((e) => e.data !== undefined),
]);

export function unavailable(why: string, cause?: unknown): Problem {
  return new Problem('IAM_UNAVAILABLE', `the identity service ${why}`, { retryAfterSeconds: 2 }, cause);
}

async function boundedText(response: Response): Promise<string> {
  if (response.body === null) return '';
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > ANSWER_MAX) {
      await reader.cancel();
      throw unavailable('answered at too great a length');
    }
    text += decoder.decode(value, { stream: true });
  }
}

function headers(at: RemoteEndpoint, bearer: string, meta: CallMeta): Headers {
  const h = new Headers({
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'x-better-iam': '1',
    authorization: `Bearer ${bearer}`,
  });
  if (meta.requestId !== undefined && REQUEST_ID.test(meta.requestId)) h.set('x-request-id', meta.requestId);
  if (at.clientIpHeader !== undefined && meta.sourceIp !== undefined) h.set(at.clientIpHeader, meta.sourceIp);
  return h;
}

/** Runs `work` under the deadline; its signal aborts what is under way. */
async function withDeadline<T>(clock: Clock, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const done = new AbortController();
  const bell = clock.sleep(ms, done.signal).then(
    () => stop.abort(new Error('deadline')),
    () => {},
  );
  try {
    return await work(stop.signal);
  } finally {
    done.abort();
    await bell;
  }
}

async function once(
  at: RemoteEndpoint,
  method: string,
  bearer: string,
  body: unknown,
  meta: CallMeta,
): Promise<unknown> {
  const [status, text] = await withDeadline(at.clock, at.deadlineMs, async (signal) => {
    const response = await at.fetch(`${at.baseUrl}/${method}`, {
      method: 'POST',
      headers: headers(at, bearer, meta),
      body: JSON.stringify(body),
      redirect: 'manual',
      signal,
    });
    return [response.status, await boundedText(response)] as const;
  }).catch((e: unknown) => {
    throw e instanceof Problem ? e : unavailable('does not answer', e);
  });
  if (status === 0 || (status >= 300 && status < 400)) throw unavailable('answered with a redirect');
  let read: z.output<typeof envelope>;
  try {
    read = envelope.parse(JSON.parse(text));
  } catch (e) {
    throw unavailable('gave an answer that cannot be read', e);
  }
  if ('error' in read) {
    if (status >= 500 || status < 400) throw unavailable(`failed with ${read.error.code}`);
    throw new RemoteRefusal(read.error.code, status, read.error.message, read.error.retryAfterMs);
  }
  if (status < 200 || status >= 300) throw unavailable(`answered ${status}`);
  return read.data;
}

/** Throws RemoteRefusal or IAM_UNAVAILABLE. A short rate limit is waited out once. */
export async function remoteCall<S extends z.ZodType>(
  at: RemoteEndpoint,
  method: string,
  bearer: string,
  body: unknown,
  answer: S,
  meta: CallMeta = {},
): Promise<z.output<S>> {
  const data = await once(at, method, bearer, body, meta).catch(async (e: unknown) => {
    const wait =
      e instanceof RemoteRefusal && e.code === 'RATE_LIMITED'
        ? (e.retryAfterMs ?? Number.POSITIVE_INFINITY)
        : undefined;
    if (wait === undefined || wait > RETRY_WAIT_MAX_MS) throw e;
    await at.clock.sleep(wait);
    return once(at, method, bearer, body, meta);
  });
  const parsed = answer.safeParse(data);
  if (!parsed.success) throw unavailable('gave an answer of another shape', parsed.error);
  return parsed.data;
}

/** What the product's caller is told. */
export function refusalProblem(e: unknown, action: string): unknown {
  if (!(e instanceof RemoteRefusal)) return e;
  switch (e.code) {
    case 'UNAUTHENTICATED':
    case 'SESSION_NETWORK_MISMATCH':
      return problem('UNAUTHENTICATED', e.message);
    case 'NOT_FOUND':
      return problem('NOT_FOUND', e.message);
    case 'INVALID_INPUT':
      return problem('INVALID_REQUEST', e.message, { errors: [] });
    case 'CONFLICT':
      return problem('CONFLICT', e.message);
    case 'RATE_LIMITED':
    case 'QUOTA_EXCEEDED':
    case 'TOO_MANY_REQUESTS':
      return problem('RATE_LIMITED', e.message, { retryAfterSeconds: Math.ceil((e.retryAfterMs ?? 60_000) / 1000) });
  }
  // Anything else about a question of ours (an unknown type, a resolver that is missing) is a fault of the set-up.
  if (e.status !== 403) return unavailable(`refused the question with ${e.code}: ${e.message}`, e);
  return problem('PERMISSION_DENIED', e.message, { action });
}
