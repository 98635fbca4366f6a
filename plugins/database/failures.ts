/**
 * What a driver threw -> what the port promises: SqlError when the server refused the statement, DatabaseUnavailable
 * when there is no connection (any more). Anything else is a bug of ours and passes unchanged.
 */
import { DatabaseUnavailable, SqlError } from '#core/kernel/database.ts';

/** The fields of a server's ErrorResponse, as node-postgres and the Neon driver both hand them on. */
interface ServerFields {
  readonly message: string;
  readonly code?: string;
  readonly severity?: string;
  readonly constraint?: string;
  readonly table?: string;
  readonly detail?: string;
  readonly hint?: string;
}

/** Connection exceptions, shutdown, start-up, no slot free: the session is or will be gone. */
const GONE = /^(08...|57P0[1-5]|53300)$/;

const NO_CONNECTION = /connect|terminated|timeout|socket|fetch|network|server error|websocket|closed|not queryable/i;

export function databaseFailure(e: unknown): unknown {
  if (e instanceof SqlError || e instanceof DatabaseUnavailable) return e;
  if (!(e instanceof Error)) {
    // A WebSocket reports its failure as an event without text.
    return new DatabaseUnavailable('the connection to the database failed', e);
  }
  const f = e as Error & ServerFields;
  if (typeof f.code === 'string' && /^[0-9A-Z]{5}$/.test(f.code) && typeof f.severity === 'string') {
    if (GONE.test(f.code) || f.severity === 'FATAL' || f.severity === 'PANIC') {
      return new DatabaseUnavailable(`the database ended the connection: ${f.message} (${f.code})`, e);
    }
    return new SqlError(f.message, {
      sqlstate: f.code,
      constraint: f.constraint ?? undefined,
      table: f.table ?? undefined,
      detail: f.detail ?? undefined,
      hint: f.hint ?? undefined,
      cause: e,
    });
  }
  const system = typeof f.code === 'string' && !f.code.startsWith('ERR_'); // ECONNREFUSED and its kin
  if (system || f.name === 'NeonDbError' || NO_CONNECTION.test(f.message)) {
    return new DatabaseUnavailable(`the database cannot be reached: ${f.message || f.code}`, e);
  }
  return e;
}

/** A connection after which this was thrown must not go back to a pool. */
export function breaksConnection(e: unknown): boolean {
  // 0A000: a prepared plan whose result type a migration changed; a fresh session plans anew.
  return !(e instanceof SqlError) || e.sqlstate === '0A000';
}
