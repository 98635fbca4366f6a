/**
 * The error registry: every error this product can answer, once. The API's problem+json, the gateway's gRPC status,
 * the CLI's exit code, the retry rule of SDK and daemon, and docs/reference/errors.md all read this table.
 * Codes are append-only and part of the contract.
 */

/** How a client may try again: never, at once or later with the same idempotency key, or after `retryAfterSeconds`. */
export type Retry = 'never' | 'same-key' | 'after';

export interface ErrorSpec {
  readonly http: number;
  /** gRPC canonical status number. */
  readonly grpc: number;
  /** CLI exit code. 1 is a bug, 2 usage; the families start at 10. */
  readonly exit: number;
  readonly retry: Retry;
  readonly title: string;
  /** What the caller can do now. */
  readonly wayOut: string;
}

const spec = (http: number, grpc: number, exit: number, retry: Retry, title: string, wayOut: string): ErrorSpec => ({
  http,
  grpc,
  exit,
  retry,
  title,
  wayOut,
});

export const ERRORS = {
  INVALID_REQUEST: spec(
    400,
    3,
    2,
    'never',
    'The request is not valid',
    'Correct the fields named in `errors` and send it again.',
  ),
  INVALID_CURSOR: spec(
    400,
    3,
    2,
    'never',
    'The cursor is not one of this list',
    'Start the list again without a cursor; keep filter and order unchanged between pages.',
  ),
  IDEMPOTENCY_KEY_REQUIRED: spec(
    400,
    3,
    2,
    'never',
    'An Idempotency-Key header is needed',
    'Send a fresh Idempotency-Key of 1 to 255 visible characters with this call, and the same one when you repeat it.',
  ),
  UNAUTHENTICATED: spec(
    401,
    16,
    10,
    'never',
    'The credential is missing, unknown or expired',
    'Log in again, or create a new API key.',
  ),
  PERMISSION_DENIED: spec(
    403,
    7,
    11,
    'never',
    'The policy does not allow this',
    'Ask an administrator of your tenant for the action named in `action`.',
  ),
  CONFIRMATION_REQUIRED: spec(
    403,
    7,
    12,
    'same-key',
    'A person must confirm this first',
    'Ask the person who delegated to approve, then repeat the same request with the same key.',
  ),
  JOIN_REFUSED: spec(
    403,
    7,
    13,
    'never',
    'The machine may not join',
    'Create a new join token for the pool and run `bcd join` with it.',
  ),
  NOT_FOUND: spec(
    404,
    5,
    14,
    'never',
    'There is no such thing, or you may not see it',
    'Check the id and the tenant you act for.',
  ),
  METHOD_NOT_ALLOWED: spec(
    405,
    12,
    2,
    'never',
    'This path does not take this method',
    'See the reference for the methods of this path.',
  ),
  CONFLICT: spec(409, 6, 15, 'never', 'It exists already, or is in use', 'Choose another name, or end what uses it.'),
  ILLEGAL_TRANSITION: spec(
    409,
    9,
    16,
    'never',
    'The state does not allow this',
    'See `allowed` for what is possible in this state.',
  ),
  CAPACITY_UNAVAILABLE: spec(
    409,
    8,
    20,
    'same-key',
    'No node can hold this now',
    'Ask for fewer devices, relax the selectors, or try again when something was released; `reasons` says what stood in the way.',
  ),
  QUOTA_EXCEEDED: spec(
    409,
    8,
    21,
    'same-key',
    'The quota of this tenant does not cover it',
    'Release something, or ask the owner of the pool for more quota.',
  ),
  VERSION_CONFLICT: spec(
    412,
    9,
    17,
    'never',
    'Somebody changed it meanwhile',
    'Read it again, look at the change, and send your edit with the new ETag.',
  ),
  PAYLOAD_TOO_LARGE: spec(
    413,
    8,
    2,
    'never',
    'The body is too large',
    'Send at most the number of bytes named in `limitBytes`.',
  ),
  UNSUPPORTED_MEDIA_TYPE: spec(415, 3, 2, 'never', 'The body is not JSON', 'Send `Content-Type: application/json`.'),
  IDEMPOTENCY_MISMATCH: spec(
    422,
    9,
    18,
    'never',
    'This key was used with another request',
    'Use a fresh Idempotency-Key for a different request.',
  ),
  RATE_LIMITED: spec(
    429,
    8,
    22,
    'after',
    'Too many requests',
    'Wait `retryAfterSeconds` and send it again with the same key.',
  ),
  STALE_EPOCH: spec(
    409,
    9,
    19,
    'never',
    'A newer owner has taken over',
    'Stop acting under this lease or session; acquire it again.',
  ),
  INTERNAL: spec(
    500,
    13,
    1,
    'same-key',
    'Something broke on our side',
    'Repeat it with the same key; if it stays, give the request id to the operator.',
  ),
  UNAVAILABLE: spec(
    503,
    14,
    23,
    'after',
    'Not available for the moment',
    'Wait `retryAfterSeconds` and send it again with the same key.',
  ),
  IAM_UNAVAILABLE: spec(
    503,
    14,
    24,
    'after',
    'The identity service does not answer',
    'Wait and repeat it with the same key; nothing was decided.',
  ),
  CONTENTION: spec(
    503,
    10,
    25,
    'same-key',
    'Too many changes of the same thing at once',
    'Repeat it with the same key.',
  ),
  DEADLINE_EXCEEDED: spec(
    504,
    4,
    26,
    'same-key',
    'It took longer than its deadline',
    'Repeat it with the same key; the first attempt may have had effect and will be replayed.',
  ),
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof ERRORS;

/** One thing wrong with the input. `field` is a path such as `devices[0].count`, or a header's name. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** What a code carries beside its text. Codes without a row carry nothing but their text. */
export interface ErrorDetails {
  INVALID_REQUEST: { errors: readonly FieldError[] };
  PERMISSION_DENIED: { action: string; resource?: string };
  CONFIRMATION_REQUIRED: { action: string; confirmationId?: string };
  ILLEGAL_TRANSITION: { from: string; event: string; allowed: readonly string[] };
  CAPACITY_UNAVAILABLE: { wanted: number; free: number; reasons: readonly PlacementReason[] };
  QUOTA_EXCEEDED: { resource: string; limit: number; used: number; wanted: number };
  PAYLOAD_TOO_LARGE: { limitBytes: number };
  RATE_LIMITED: { retryAfterSeconds: number };
  UNAVAILABLE: { retryAfterSeconds: number };
  IAM_UNAVAILABLE: { retryAfterSeconds: number };
}

/** Why some nodes were refused: `code` is stable, `nodes` how many, `example` one of their names. */
export interface PlacementReason {
  readonly code: string;
  readonly message: string;
  readonly nodes: number;
  readonly example?: string;
}

type DetailsOf<C extends ErrorCode> = C extends keyof ErrorDetails ? ErrorDetails[C] : undefined;
type DetailsArg<C extends ErrorCode> = C extends keyof ErrorDetails ? [details: ErrorDetails[C]] : [];

const MARK = Symbol.for('better-compute.problem');

/** A typed error. `detail` may be read by the caller; `cause` is for operators and never leaves the process. */
export class Problem<C extends ErrorCode = ErrorCode> extends Error {
  readonly code: C;
  readonly details: DetailsOf<C>;
  readonly [MARK] = true;
  constructor(code: C, detail: string, details: DetailsOf<C>, cause?: unknown) {
    super(detail, cause === undefined ? undefined : { cause });
    this.name = code;
    this.code = code;
    this.details = details;
  }
  get spec(): ErrorSpec {
    return ERRORS[this.code];
  }
}

export function problem<C extends ErrorCode>(code: C, detail: string, ...rest: DetailsArg<C>): Problem<C> {
  return new Problem(code, detail, rest[0] as DetailsOf<C>);
}

/** True across realms and bundles, where `instanceof` is not. */
export function isProblem(e: unknown): e is Problem {
  return typeof e === 'object' && e !== null && (e as Record<symbol, unknown>)[MARK] === true;
}

/** Whatever was thrown, as a Problem: an unknown error becomes INTERNAL and its text stays inside. */
export function toProblem(e: unknown): Problem {
  if (isProblem(e)) return e;
  return new Problem('INTERNAL', 'unexpected error', undefined, e);
}

/** RFC 9457 body. `type` is the anchor of the code in the reference. */
export interface ProblemBody {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: ErrorCode;
  readonly detail: string;
  readonly wayOut: string;
  readonly retry: Retry;
  readonly requestId?: string;
  readonly [detail: string]: unknown;
}

export function problemBody(p: Problem, requestId?: string): ProblemBody {
  return {
    type: `/v1/errors#${p.code}`,
    title: p.spec.title,
    status: p.spec.http,
    code: p.code,
    detail: p.message,
    wayOut: p.spec.wayOut,
    retry: p.spec.retry,
    ...(p.details ?? {}),
    ...(requestId === undefined ? {} : { requestId }),
  };
}

/** A broken rule of our own: crashes the unit of work, becomes INTERNAL at the edge. Never for user input. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`assertion failed: ${message}`);
}
