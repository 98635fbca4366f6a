/** A look into the journal from beside the daemon: read-only, so it disturbs nobody. */
import { DatabaseSync } from 'node:sqlite';

export interface JournalStatus {
  readonly id: string;
  readonly open: number;
  readonly unacknowledged: number;
  readonly droppedEvents: number;
  readonly memos: readonly string[];
}

/** Undefined for a file that is not a journal yet. */
export function readJournalStatus(path: string): JournalStatus | undefined {
  const db = new DatabaseSync(path, { readOnly: true, timeout: 2000 });
  try {
    const one = (sql: string) => db.prepare(sql).get() as Record<string, string | number> | undefined;
    const id = one(`select value from facts where key = 'journal_id'`)?.['value'];
    if (id === undefined) return undefined;
    return {
      id: String(id),
      open: Number(one(`select count(*) as c from commands where state <> 'done'`)?.['c']),
      unacknowledged: Number(one('select count(*) as c from outbox')?.['c']),
      droppedEvents: Number(one(`select value from facts where key = 'dropped_events'`)?.['value'] ?? 0),
      memos: db
        .prepare(`select key from facts where key like 'memo:%' order by key`)
        .all()
        .map((row) => String(row['key']).slice(5)),
    };
  } catch {
    return undefined;
  } finally {
    db.close();
  }
}
