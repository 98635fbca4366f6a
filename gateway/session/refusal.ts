/**
 * A Problem as a gRPC status. The trailers carry the whole problem for the daemon, and the standard pushback where
 * there is a time to come back at.
 */
import { Metadata, type StatusObject } from '@grpc/grpc-js';
import { type Problem, problemBody, toProblem } from '#core/kernel/errors.ts';

export const PROBLEM_KEY = 'bc-problem-bin';
export const PUSHBACK_KEY = 'grpc-retry-pushback-ms';

export function retryAfterMs(p: Problem): number | undefined {
  const seconds = (p.details as { retryAfterSeconds?: number } | undefined)?.retryAfterSeconds;
  return seconds === undefined ? undefined : Math.round(seconds * 1000);
}

/** `spreadMs`: added at random to a pushback, so that those refused together do not come back together. */
export function statusOf(e: unknown, spreadMs = 0): StatusObject & { readonly name: string; readonly message: string } {
  const p = toProblem(e);
  const metadata = new Metadata();
  metadata.set(PROBLEM_KEY, Buffer.from(JSON.stringify(problemBody(p))));
  const pushback = retryAfterMs(p);
  if (pushback !== undefined) metadata.set(PUSHBACK_KEY, String(pushback + Math.round(Math.random() * spreadMs)));
  const details = `${p.code}: ${p.message}`;
  return { name: p.code, message: details, code: p.spec.grpc, details, metadata };
}
