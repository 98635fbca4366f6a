/**
 * The handle of Workers: the Neon serverless driver. A query is one HTTP round trip; a transaction is one WebSocket
 * session, opened and closed inside the call, since workerd forbids a connection to outlive the request that made it.
 * Runs in workerd and in Node, against Neon (no options) or against the local proxy (`localProxy`).
 *
 * The driver's settings are global to the process; the endpoints are therefore kept by database address, so that two
 * handles with different proxies do not disturb each other.
 */
import { Client, neon, neonConfig } from '@neondatabase/serverless';
import {
  type Database,
  DatabaseUnavailable,
  type Row,
  type Sql,
  SqlError,
  type SqlValue,
} from '#core/kernel/database.ts';
import { databaseFailure } from './failures.ts';
import { type RawResult, runTransaction, type TransactionEnd } from './pg-session.ts';
import { decodeRows, encodeParams, rawTypes } from './values.ts';

export interface NeonOptions {
  /** `host:port` of the local proxy; undefined in production. */
  readonly localProxy?: string;
  /** Full URL that takes a statement by POST; by default Neon's, or the local proxy's. */
  readonly fetchEndpoint?: string;
  /** `host[:port]/path` of the WebSocket proxy, without scheme; by default Neon's, or the local proxy's. */
  readonly wsProxy?: string;
  /** The server ends a statement of a transaction that runs longer (57014); an HTTP query is given up. */
  readonly statementTimeoutMs?: number;
  readonly connectTimeoutMs?: number;
}

const GRACE_MS = 5_000;
const endpoints = new Map<string, string>();
const neonEndpoint = neonConfig.fetchEndpoint;

/** A handle whose transactions use the same sessions one after the other, as many as run at once; close() ends them. */
export interface NeonSessions extends Database {
  close(): void;
}

export interface NeonDatabase extends Database {
  /** For one piece of work with many transactions: inside one request, or one event of a Durable Object. */
  keepSessions(): NeonSessions;
}

export function openNeon(url: string, options: NeonOptions = {}): NeonDatabase {
  const statementTimeoutMs = options.statementTimeoutMs ?? 15_000;
  const local = options.localProxy;
  const endpoint = options.fetchEndpoint ?? (local === undefined ? undefined : `http://${local}/sql`);
  const wsProxy = options.wsProxy ?? (local === undefined ? undefined : `${local}/v2`);
  if (endpoint !== undefined) useEndpoint(url, endpoint);

  const http = neon(url, { arrayMode: true, fullResults: true, disableWarningInBrowsers: true });
  const begin =
    `begin isolation level read committed; set local time zone 'UTC'; ` +
    `set local statement_timeout = ${statementTimeoutMs}; set local idle_in_transaction_session_timeout = 30000`;

  return {
    async query<R extends Row>(text: string, params?: readonly SqlValue[]): Promise<R[]> {
      let result: RawResult;
      try {
        result = (await http.query(text, encodeParams(params), {
          arrayMode: true,
          fullResults: true,
          types: rawTypes,
          fetchOptions: { signal: AbortSignal.timeout(statementTimeoutMs + GRACE_MS) },
        })) as unknown as RawResult;
      } catch (e) {
        const failure = databaseFailure(e);
        // Statement and parameters are text by now: what is not the server's answer is the way to it.
        if (failure instanceof SqlError || failure instanceof DatabaseUnavailable) throw failure;
        throw new DatabaseUnavailable('the database cannot be reached', e);
      }
      return decodeRows<R>(result.fields, result.rows);
    },

    async transaction<T>(fn: (tx: Sql) => Promise<T>): Promise<T> {
      const client = await session();
      try {
        const end = await runTransaction(client, begin, fn);
        if ('failed' in end) throw end.failed;
        return end.value;
      } finally {
        hangUp(client);
      }
    },

    keepSessions() {
      const idle: Client[] = [];
      let open = true;
      return {
        query: this.query,
        async transaction<T>(fn: (tx: Sql) => Promise<T>): Promise<T> {
          const client = idle.pop() ?? (await session());
          let end: TransactionEnd<T>;
          try {
            end = await runTransaction(client, begin, fn);
          } catch (e) {
            hangUp(client);
            throw e;
          }
          if (open) idle.push(client);
          else hangUp(client);
          if ('failed' in end) throw end.failed;
          return end.value;
        },
        close() {
          open = false;
          for (const client of idle.splice(0)) hangUp(client);
        },
      };
    },
  };

  async function session(): Promise<Client> {
    const client = new Client({
      connectionString: url,
      connectionTimeoutMillis: options.connectTimeoutMs ?? 5_000,
      query_timeout: statementTimeoutMs + GRACE_MS,
    });
    // Closing the socket, by either side, is an error event; without a listener it would be an unhandled one.
    client.on('error', () => {});
    if (wsProxy !== undefined) {
      client.neonConfig.wsProxy = () => wsProxy;
      client.neonConfig.useSecureWebSocket = local === undefined;
    }
    try {
      await client.connect();
      return client;
    } catch (e) {
      hangUp(client);
      const failure = databaseFailure(e);
      throw failure instanceof DatabaseUnavailable
        ? failure
        : new DatabaseUnavailable('no session with the database could be opened', e);
    }
  }
}

/** Not awaited: the outcome is known, and the goodbye of a dead connection may never be answered. */
function hangUp(client: Client): void {
  void client.end().catch(() => {});
}

function useEndpoint(url: string, endpoint: string): void {
  const { hostname, port } = new URL(url.replace(/^postgres(ql)?:/, 'http:'));
  endpoints.set(`${hostname}:${port || '5432'}`, endpoint);
  neonConfig.fetchEndpoint = (host, atPort, about) =>
    endpoints.get(`${host}:${atPort || '5432'}`) ??
    (typeof neonEndpoint === 'function' ? neonEndpoint(host, atPort, about) : neonEndpoint);
}
