/**
 * The port through which services and reconcilers reach Postgres. Three handles implement it: HTTP (one statement a
 * round trip), WebSocket transaction, node-postgres. All give the same values for the same types:
 * int8 and int4 as number, numeric as string, bool as boolean, json/jsonb parsed, bytea as Uint8Array,
 * text[] as string[], timestamptz as an Instant (RFC 3339 UTC text with microseconds), all else as text.
 */
export type SqlValue = string | number | boolean | null | Uint8Array | readonly string[] | readonly number[];
export type Row = Record<string, unknown>;

export interface Sql {
  /** Runs one statement. Objects for json/jsonb parameters go in as JSON text. */
  query<R extends Row = Row>(text: string, params?: readonly SqlValue[]): Promise<R[]>;
}

export interface Database extends Sql {
  /** BEGIN, fn, COMMIT; ROLLBACK when fn throws. READ COMMITTED. Nothing but `tx` may be awaited inside. */
  transaction<T>(fn: (tx: Sql) => Promise<T>): Promise<T>;
}

/** What every handle throws when the server refuses: SQLSTATE and the names that the server gave. */
export class SqlError extends Error {
  readonly sqlstate: string;
  readonly constraint: string | undefined;
  readonly table: string | undefined;
  readonly detail: string | undefined;
  readonly hint: string | undefined;
  constructor(
    message: string,
    at: { sqlstate: string; constraint?: string; table?: string; detail?: string; hint?: string; cause?: unknown },
  ) {
    super(message, at.cause === undefined ? undefined : { cause: at.cause });
    this.name = 'SqlError';
    this.sqlstate = at.sqlstate;
    this.constraint = at.constraint;
    this.table = at.table;
    this.detail = at.detail;
    this.hint = at.hint;
  }
}

/** The connection broke or could not be made; whether the statement had effect is not known. */
export class DatabaseUnavailable extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'DatabaseUnavailable';
  }
}
