/**
 * The handle of Node hosts: a node-postgres pool with a bound, deadlines on connect, statement and idle transaction,
 * and error listeners everywhere, so that a connection that dies while idle costs one connection and not the process.
 * Statements that return are prepared once a connection (bounded number of names).
 */
import pg from 'pg';
import type { Database, Row, Sql, SqlValue } from '#core/kernel/database.ts';
import { breaksConnection, databaseFailure } from './failures.ts';
import { runStatement, runTransaction } from './pg-session.ts';

export interface PgOptions {
  /** Most connections at once; further callers wait up to `connectTimeoutMs`. */
  readonly max?: number;
  readonly applicationName?: string;
  /** The server ends a statement that runs longer (57014). */
  readonly statementTimeoutMs?: number;
  readonly connectTimeoutMs?: number;
  /** Told of connections that died while idle. */
  readonly onConnectionLost?: (e: Error) => void;
}

export interface ScriptSql extends Sql {
  /** Several statements without parameters; for migrations. */
  script(text: string): Promise<void>;
}

export interface PgDatabase extends Database {
  transaction<T>(fn: (tx: ScriptSql) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

const NAMES_MAX = 256;
/** The client gives up on a silent server a little after the server should have ended the statement. */
const GRACE_MS = 5_000;

export function openPg(url: string, options: PgOptions = {}): PgDatabase {
  const statementTimeoutMs = options.statementTimeoutMs ?? 15_000;
  const pool = new pg.Pool({
    connectionString: url,
    max: options.max ?? 10,
    application_name: options.applicationName ?? 'better-compute',
    connectionTimeoutMillis: options.connectTimeoutMs ?? 5_000,
    query_timeout: statementTimeoutMs + GRACE_MS,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: 30_000,
    keepAlive: true,
    options: '-c TimeZone=UTC',
  });
  pool.on('error', (e) => options.onConnectionLost?.(e));
  // A client that is checked out reports its failure through the running query; the listener only keeps the event,
  // which comes as well, from being an uncaught exception.
  pool.on('connect', (client) => client.on('error', () => {}));

  const names = new Map<string, string>();
  const nameOf = (text: string): string | undefined => {
    const known = names.get(text);
    if (known !== undefined || names.size >= NAMES_MAX) return known;
    const name = `s${names.size}`;
    names.set(text, name);
    return name;
  };

  async function withClient<T>(fn: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    let client: pg.PoolClient;
    try {
      client = await pool.connect();
    } catch (e) {
      throw databaseFailure(e);
    }
    let broken = false;
    try {
      return await fn(client);
    } catch (e) {
      broken = breaksConnection(e);
      throw e;
    } finally {
      client.release(broken);
    }
  }

  return {
    query: <R extends Row>(text: string, params?: readonly SqlValue[]) =>
      withClient((client) => runStatement<R>(client, text, params, nameOf(text))),
    transaction: async <T>(fn: (tx: ScriptSql) => Promise<T>) => {
      const end = await withClient((client) =>
        runTransaction(client, 'begin isolation level read committed', fn, nameOf),
      );
      if ('failed' in end) throw end.failed;
      return end.value;
    },
    close: () => pool.end(),
  };
}
