/** What a gateway answered, as a Problem: the trailers carry it whole; without them the status says as much as it can. */
import { type ServiceError, status } from '@grpc/grpc-js';
import { ERRORS, type ErrorCode, isProblem, Problem, problem } from '#core/kernel/errors.ts';

export interface Refusal {
  readonly problem: Problem;
  /** How long the gateway wants us to wait. */
  readonly pushbackMs?: number;
}

const PROBLEM_KEY = 'bc-problem-bin';
const PUSHBACK_KEY = 'grpc-retry-pushback-ms';
const PUSHBACK_MAX_MS = 3_600_000;

const BY_STATUS: Readonly<Partial<Record<number, ErrorCode>>> = {
  [status.UNAUTHENTICATED]: 'UNAUTHENTICATED',
  [status.PERMISSION_DENIED]: 'JOIN_REFUSED',
  [status.NOT_FOUND]: 'NOT_FOUND',
  [status.UNIMPLEMENTED]: 'METHOD_NOT_ALLOWED',
};

export function refusalOf(e: unknown): Refusal {
  if (isProblem(e)) return { problem: e };
  const { code, details, metadata } = e as Partial<ServiceError>;
  const text = details ?? (e instanceof Error ? e.message : String(e));
  const pushback = Number(metadata?.get(PUSHBACK_KEY)[0] ?? Number.NaN);
  const told = readProblem(metadata?.get(PROBLEM_KEY)[0]);
  const known = code === undefined ? undefined : BY_STATUS[code];
  return {
    problem:
      told ??
      (known === undefined ? unavailable(text, e) : (new Problem(known, text, undefined as never, e) as Problem)),
    ...(pushback >= 0 ? { pushbackMs: Math.min(pushback, PUSHBACK_MAX_MS) } : {}),
  };
}

const unavailable = (text: string, cause: unknown): Problem =>
  new Problem('UNAVAILABLE', `the gateway does not answer: ${text}`, { retryAfterSeconds: 1 }, cause) as Problem;

function readProblem(value: Buffer | string | undefined): Problem | undefined {
  if (value === undefined) return undefined;
  try {
    const { code, detail, ...details } = JSON.parse(value.toString()) as { code: string; detail: string };
    if (!Object.hasOwn(ERRORS, code)) return undefined;
    return new Problem(code as ErrorCode, detail, details as never);
  } catch {
    return undefined;
  }
}

export const noAnswer = (what: string): Problem =>
  problem('UNAVAILABLE', `${what} got no answer in time`, { retryAfterSeconds: 1 });
