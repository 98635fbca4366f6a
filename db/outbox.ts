/**
 * Reading the outbox by a cursor that never skips a row that commits late: rows are ordered by (transaction id, seq)
 * and read only below the oldest transaction still running, all in one statement and so under one snapshot.
 */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';

/** Position behind the last row read. `xid` is text: a 64-bit transaction id. */
export interface OutboxCursor {
  readonly xid: string;
  readonly seq: number;
}

export const OUTBOX_START: OutboxCursor = { xid: '0', seq: 0 };

export interface EventRow {
  readonly xid: string;
  readonly seq: number;
  readonly id: string;
  readonly type: string;
  readonly tenant_id: string;
  readonly subject_kind: string;
  readonly subject_id: string;
  readonly data: unknown;
  readonly traceparent: string | null;
  readonly at: Instant;
}

// `xid` here is text, and a bare `order by xid` would mean this one: 1000 before 999.
const COLUMNS = 'xid::text as xid, seq, id, type, tenant_id, subject_kind, subject_id, data, traceparent, at';

/** The next events behind the cursor, of every tenant. */
export async function readOutbox(db: Sql, after: OutboxCursor, limit: number): Promise<EventRow[]> {
  return db.query<EventRow & Record<string, unknown>>(`select ${COLUMNS} from event_page($1::xid8, $2, $3)`, [
    after.xid,
    after.seq,
    limit,
  ]);
}

/** The next events of one tenant, optionally of some types (`reservation.*` allowed). */
export async function readTenantEvents(
  db: Sql,
  tenantId: string,
  after: OutboxCursor,
  types: readonly string[],
  limit: number,
): Promise<EventRow[]> {
  return db.query<EventRow & Record<string, unknown>>(
    `select ${COLUMNS} from events
     where tenant_id = $1 and (xid, seq) > ($2::xid8, $3) and xid < pg_snapshot_xmin(pg_current_snapshot())
       and (cardinality($4::text[]) = 0 or event_matches($4::text[], type))
     order by events.xid, events.seq limit $5`,
    [tenantId, after.xid, after.seq, types, limit],
  );
}

/** Where the stream ends now: a new watcher that asks for no history starts here. */
export async function outboxEnd(db: Sql): Promise<OutboxCursor> {
  const [row] = await db.query<{ xid: string }>(
    'select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text as xid',
  );
  return { xid: row!.xid, seq: Number.MAX_SAFE_INTEGER };
}
