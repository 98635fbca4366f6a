/**
 * What the database refused -> the typed error for the caller. Own SQLSTATEs: BC001 stale epoch, BC002 illegal
 * transition, BC003 no such row, BC004 version changed, BC005 policies changed, BC013 quota exceeded.
 */
import { DatabaseUnavailable, SqlError } from '#core/kernel/database.ts';
import { Problem, problem, toProblem } from '#core/kernel/errors.ts';
import { CONSTRAINTS } from './constraints.ts';

/** Thrown out of a mutation whose decision was made under policies that changed since: decide again, then repeat. */
export class PolicyChanged extends Error {
  override name = 'PolicyChanged';
}

/** Worth running the whole transaction again: serialization failure, deadlock, exclusion. */
export function isContention(e: unknown): boolean {
  return e instanceof SqlError && (e.sqlstate === '40001' || e.sqlstate === '40P01' || e.sqlstate === '23P01');
}

export function sqlProblem(e: unknown): Problem | PolicyChanged {
  if (e instanceof DatabaseUnavailable) {
    return new Problem('UNAVAILABLE', 'the database does not answer at the moment', { retryAfterSeconds: 2 }, e);
  }
  if (!(e instanceof SqlError)) return e instanceof PolicyChanged ? e : toProblem(e);
  switch (e.sqlstate) {
    case 'BC001':
      return problem('STALE_EPOCH', e.message);
    case 'BC002':
      return problem('ILLEGAL_TRANSITION', e.message, { from: e.detail ?? '', event: e.hint ?? '', allowed: [] });
    case 'BC003':
      return problem('NOT_FOUND', e.message);
    case 'BC004':
      return problem('VERSION_CONFLICT', e.message);
    case 'BC005':
      return new PolicyChanged(e.message);
    case 'BC013': {
      const d = JSON.parse(e.detail ?? '{}') as { resource: string; limit: number; used: number; wanted: number };
      return problem('QUOTA_EXCEEDED', `${d.wanted} ${d.resource} wanted, ${d.used} of ${d.limit} in use`, d);
    }
    case '40001':
    case '40P01':
      return new Problem('CONTENTION', 'too many changes of the same thing at once', undefined, e);
    case '57014':
      return new Problem('DEADLINE_EXCEEDED', 'the database took too long', undefined, e);
    case '53300':
    case '57P01':
    case '57P02':
    case '57P03':
      return new Problem('UNAVAILABLE', 'the database does not answer at the moment', { retryAfterSeconds: 2 }, e);
  }
  const meaning = e.constraint === undefined ? undefined : CONSTRAINTS[e.constraint];
  if (meaning === undefined || 'bug' in meaning) {
    return new Problem('INTERNAL', 'unexpected error', undefined, e);
  }
  if (meaning.code === 'INVALID_REQUEST') {
    return problem('INVALID_REQUEST', `${meaning.field} ${meaning.detail}`, {
      errors: [{ field: meaning.field, message: meaning.detail }],
    });
  }
  return new Problem(meaning.code, meaning.detail, undefined as never, e);
}
