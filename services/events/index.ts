/** Events as a tenant reads them: history, and the pages that the live stream is made of. */
import type { eventOperations } from '#core/events/contract.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import { openCursor, sealCursor } from '#core/kernel/cursor.ts';
import type { Output } from '#core/kernel/operations.ts';
import { type EventRow, OUTBOX_START, type OutboxCursor, outboxEnd, readTenantEvents } from '#db/outbox.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { requireCollection } from '../verbs.ts';

export type EventView = Output<(typeof eventOperations)['watch']>;

/** One scope for both ways of reading: a cursor of the history resumes the stream, and the reverse. */
const scope = (ctx: RequestContext) => ({ operation: 'events', tenantId: ctx.caller.tenantId, filter: null });

const typesOf = (types: string | undefined) =>
  (types ?? '')
    .split(',')
    .map((t) => t.trim())
    .filter((t) => t !== '');

async function view(ctx: RequestContext, e: EventRow): Promise<EventView> {
  return {
    id: e.id,
    type: e.type,
    subject: { kind: e.subject_kind, id: e.subject_id },
    at: e.at,
    data: e.data,
    cursor: await sealCursor(ctx.cursorKey, scope(ctx), { xid: e.xid, seq: e.seq }),
  };
}

/** Where a stream starts: behind the cursor, or at the end when there is none. Throws INVALID_CURSOR. */
export async function watchFrom(ctx: RequestContext, cursor: string | undefined): Promise<OutboxCursor> {
  await requireCollection(ctx, 'compute:events:watch', 'compute-event');
  if (cursor === undefined) return outboxEnd(ctx.db);
  return (await openCursor(ctx.cursorKey, scope(ctx), cursor)) as unknown as OutboxCursor;
}

/** The next events of the caller's tenant behind a position, and the position behind them. */
export async function watchPage(ctx: RequestContext, after: OutboxCursor, types: string | undefined, limit: number) {
  const rows = await readTenantEvents(ctx.db, ctx.caller.tenantId, after, typesOf(types), limit);
  const last = rows.at(-1);
  const position = last === undefined ? after : { xid: last.xid, seq: last.seq };
  return { events: await Promise.all(rows.map((e) => view(ctx, e))), after: position };
}

export const handlers: Handlers<Pick<typeof eventOperations, 'events.list'>> = {
  async 'events.list'(ctx, input) {
    await requireCollection(ctx, 'compute:events:list', 'compute-event');
    const from =
      input.cursor === undefined
        ? OUTBOX_START
        : ((await openCursor(ctx.cursorKey, scope(ctx), input.cursor)) as unknown as OutboxCursor);
    const page = await watchPage(ctx, from, input.types, input.limit);
    const nextCursor = await sealCursor(ctx.cursorKey, scope(ctx), page.after as unknown as Json);
    return { items: page.events, nextCursor };
  },
};
