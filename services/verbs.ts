/** What the verbs of every capability share: asking IAM, doing something once per key, paging, versions. */
import type { AuthzResource, Decision } from '#core/iam/port.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import { type CursorScope, openCursor, sealCursor } from '#core/kernel/cursor.ts';
import { isProblem, problem } from '#core/kernel/errors.ts';
import type { Instant } from '#core/kernel/time.ts';
import { fingerprintOf, once, storedAnswer } from '#db/idempotency.ts';
import { mutate, type Tx } from '#db/mutate.ts';
import { sqlProblem } from '#db/sql-problem.ts';
import { mutationOf, type RequestContext, scopeOf } from './context.ts';

/** Asks about a whole collection of the caller's tenant. */
export function requireCollection(ctx: RequestContext, action: string, type: AuthzResource['type']): Promise<Decision> {
  return ctx.require(action, { type, id: '*', tenantId: ctx.caller.tenantId });
}

/** Asks about something that is the whole platform's: shown to, and done by, its own tenant alone. */
export async function requirePlatform(
  ctx: RequestContext,
  action: string,
  resource: Pick<AuthzResource, 'type' | 'id'>,
): Promise<Decision> {
  const decision = await ctx.require(action, { ...resource, tenantId: ctx.caller.tenantId });
  if (!ctx.caller.rootTenant) {
    throw problem('PERMISSION_DENIED', "this is for the platform's own tenant alone", { action });
  }
  return decision;
}

/** A verb with an effect: once per idempotency key, in one transaction with all that goes with the change. */
export async function performOnce<T>(
  ctx: RequestContext,
  operation: string,
  decision: Decision,
  input: unknown,
  act: (tx: Tx) => Promise<T>,
): Promise<T> {
  const fingerprint = fingerprintOf(operation, input as Json);
  return (await mutate(mutationOf(ctx, decision), (tx) =>
    once(tx, scopeOf(ctx, operation), fingerprint, async () => (await act(tx)) as Json),
  )) as T;
}

/**
 * The answer of `act`; or, where the thing it is about is gone, the one that was given when it was still there: a
 * repeated delete answers as the first did, and so does an edit of what was deleted since.
 */
export async function orStoredAnswer<T>(
  ctx: RequestContext,
  operation: string,
  input: unknown,
  act: () => Promise<T>,
): Promise<T> {
  try {
    return await act();
  } catch (e) {
    if (ctx.idempotencyKey === undefined || !isProblem(e) || e.code !== 'NOT_FOUND') throw e;
    const fingerprint = await fingerprintOf(operation, input as Json);
    const stored = await storedAnswer(ctx.db, scopeOf(ctx, operation), fingerprint).catch((failed: unknown) => {
      throw sqlProblem(failed);
    });
    if (stored === undefined) throw e;
    return stored as T;
  }
}

/** Refuses an edit that was made on an older version than the row has. Without If-Match the last writer wins. */
export function requireVersion(ctx: RequestContext, current: number): void {
  if (ctx.ifMatch !== undefined && ctx.ifMatch !== String(current)) {
    throw problem('VERSION_CONFLICT', `version ${ctx.ifMatch} was given, ${current} stands`);
  }
}

export const notFound = (kind: string, id: string) => problem('NOT_FOUND', `there is no ${kind} ${id}`);

/** Where a page begins: behind the row with this time of creation, to the microsecond, and this id. */
export interface After {
  readonly at: Instant;
  readonly id: string;
}

export interface PageInput {
  readonly limit: number;
  readonly cursor?: string | undefined;
  readonly order: 'asc' | 'desc';
}

/**
 * One page by keyset. `fetch` returns up to `limit` rows behind `after`, ordered by (created_at, id). Rows that existed
 * all the time appear exactly once, whatever is added or removed between the pages.
 */
export async function keysetPage<R extends { created_at: Instant; id: string }, V>(
  ctx: RequestContext,
  operation: string,
  input: PageInput & Readonly<Record<string, unknown>>,
  fetch: (after: After | undefined, limit: number) => Promise<R[]>,
  view: (row: R) => V,
): Promise<{ items: V[]; nextCursor?: string }> {
  const { limit, cursor, ...filter } = input;
  const scope: CursorScope = { operation, tenantId: ctx.caller.tenantId, filter: filter as Json };
  const after =
    cursor === undefined ? undefined : ((await openCursor(ctx.cursorKey, scope, cursor)) as unknown as After);
  const rows = await fetch(after, limit + 1);
  const shown = rows.slice(0, limit);
  const items = shown.map(view);
  if (rows.length <= limit) return { items };
  const last = shown[shown.length - 1]!;
  return { items, nextCursor: await sealCursor(ctx.cursorKey, scope, { at: last.created_at, id: last.id }) };
}

/** The comparison and direction of a keyset in SQL; both from a closed list, so they may be written into a statement. */
export const keysetOrder = (order: 'asc' | 'desc') =>
  order === 'asc' ? { cmp: '>', dir: 'asc' } : { cmp: '<', dir: 'desc' };
