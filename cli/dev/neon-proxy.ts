/**
 * Stands in for Neon's proxy on this machine: POST /sql runs a statement or a batch, a WebSocket carries the bytes of
 * a Postgres session. Workers use the Neon driver unchanged, in development, in tests and in production.
 *
 * Only databases of one server are reachable: the address in the caller's connection string is checked, not followed.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import type { WebSocket } from 'ws';
import type { PgSession, RawResult } from '#plugins/database/pg-session.ts';
import { rawTypes } from '#plugins/database/values.ts';

// A test runner that resolves with browser conditions would take the stub that `ws` has for browsers.
const { WebSocketServer, createWebSocketStream } = createRequire(import.meta.url)('ws') as typeof import('ws');

const BODY_MAX = 8 * 1024 * 1024;
const POOLS_MAX = 200;
const NAMES_MAX = 256;

export interface NeonProxy {
  /** `127.0.0.1:port`. */
  readonly address: string;
  close(): Promise<void>;
}

interface Statement {
  readonly query: string;
  readonly params?: readonly (string | null)[];
}

/** `server` is any connection string of the Postgres to serve. */
export async function startNeonProxy(
  server: string,
  options: { port?: number; poolSize?: number } = {},
): Promise<NeonProxy> {
  const target = new URL(server);
  const pools = new Map<string, pg.Pool>();
  /** Statements that return are prepared once a connection. */
  const names = new Map<string, string>();
  const nameOf = (text: string): { name?: string } => {
    const known = names.get(text);
    if (known !== undefined) return { name: known };
    if (names.size < NAMES_MAX) names.set(text, `s${names.size}`);
    return {};
  };

  function poolFor(connectionString: string): pg.Pool {
    const asked = new URL(connectionString);
    if (asked.host !== target.host) throw new Refused(`this proxy serves ${target.host} only`);
    const key = `${asked.username}:${asked.password}${asked.pathname}`;
    const known = pools.get(key);
    if (known !== undefined) return known;
    if (pools.size >= POOLS_MAX) {
      const [oldest, pool] = pools.entries().next().value!;
      pools.delete(oldest);
      void pool.end();
    }
    const pool = new pg.Pool({
      connectionString: `postgres://${asked.username}:${asked.password}@${target.host}${asked.pathname}`,
      max: options.poolSize ?? 24,
      application_name: 'neon-proxy',
      connectionTimeoutMillis: 5_000,
      statement_timeout: 15_000,
      idleTimeoutMillis: 30_000,
      options: '-c TimeZone=UTC',
    });
    pool.on('error', () => {});
    pool.on('connect', (client) => client.on('error', () => {}));
    pools.set(key, pool);
    return pool;
  }

  async function run(req: IncomingMessage): Promise<unknown> {
    const connectionString = req.headers['neon-connection-string'];
    if (typeof connectionString !== 'string') throw new Refused('the header Neon-Connection-String is missing');
    const pool = poolFor(connectionString);
    const body = JSON.parse(await bodyOf(req)) as Statement | { queries: Statement[] };
    const client = await pool.connect();
    let broken = false;
    try {
      if (!('queries' in body)) return await runOne(client, body, nameOf(body.query));
      await client.query(beginOf(req));
      try {
        const results = [];
        for (const statement of body.queries) results.push(await runOne(client, statement));
        await client.query('commit');
        return { results };
      } catch (e) {
        await client.query('rollback');
        throw e;
      }
    } catch (e) {
      broken = (e as { severity?: string }).severity !== 'ERROR';
      throw e;
    } finally {
      client.release(broken);
    }
  }

  const http = createServer((req, res) => {
    if (req.method !== 'POST' || req.url !== '/sql') return answer(res, 404, { message: 'POST /sql, or a WebSocket' });
    run(req).then(
      (result) => answer(res, 200, result),
      (e: unknown) => failed(res, e),
    );
  });
  const wss = new WebSocketServer({ noServer: true });
  http.on('upgrade', (req: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => {});
    wss.handleUpgrade(req, socket, head, (ws) => pipe(ws, target));
  });
  await new Promise<void>((resolve, reject) => {
    http.once('error', reject);
    http.listen(options.port ?? 0, '127.0.0.1', resolve);
  });
  const bound = http.address() as { port: number };

  return {
    address: `127.0.0.1:${bound.port}`,
    async close() {
      for (const ws of wss.clients) ws.terminate();
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
      await Promise.allSettled([...pools.values()].map((p) => p.end()));
    },
  };
}

class Refused extends Error {}

async function runOne(session: PgSession, s: Statement, named: { name?: string } = {}) {
  const result = (await session.query({
    ...named,
    text: s.query,
    values: [...(s.params ?? [])],
    rowMode: 'array',
    queryMode: 'extended',
    types: rawTypes,
  })) as RawResult & { rowCount: number | null };
  const fields = result.fields.map((f) => ({ ...f }));
  return { command: result.command, rowCount: result.rowCount, rowAsArray: true, rows: result.rows, fields };
}

const ISOLATION: Record<string, string> = {
  ReadUncommitted: 'read uncommitted',
  ReadCommitted: 'read committed',
  RepeatableRead: 'repeatable read',
  Serializable: 'serializable',
};

function beginOf(req: IncomingMessage): string {
  const level = ISOLATION[String(req.headers['neon-batch-isolation-level'] ?? 'ReadCommitted')];
  if (level === undefined) throw new Refused('unknown Neon-Batch-Isolation-Level');
  const readOnly = req.headers['neon-batch-read-only'] === 'true' ? ' read only' : '';
  const deferrable = req.headers['neon-batch-deferrable'] === 'true' ? ' deferrable' : '';
  return `begin isolation level ${level}${readOnly}${deferrable}`;
}

async function bodyOf(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_MAX) throw new Refused(`the body is larger than ${BODY_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function answer(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify(body));
}

const ERROR_FIELDS = [
  ...['severity', 'code', 'detail', 'hint', 'position', 'where'],
  ...['schema', 'table', 'column', 'dataType', 'constraint'],
];

/** The driver keeps the SQLSTATE of a 400 only; any other status is a fault of the way there. */
function failed(res: ServerResponse, e: unknown): void {
  const f = e as Record<string, unknown>;
  const message = String(f.message ?? e);
  if (typeof f.severity !== 'string') {
    answer(res, e instanceof Refused ? 403 : 503, { message });
  } else {
    answer(res, 400, { message, ...Object.fromEntries(ERROR_FIELDS.map((k) => [k, f[k]])) });
  }
}

/** Bytes of the session, both ways, with back-pressure. Either side's end is the other's. */
function pipe(ws: WebSocket, target: URL): void {
  const upstream = connect({ host: target.hostname, port: Number(target.port) });
  upstream.setNoDelay(true);
  const stream = createWebSocketStream(ws);
  stream.on('error', () => upstream.destroy());
  upstream.on('error', () => ws.terminate());
  stream.on('close', () => upstream.destroy());
  upstream.on('close', () => ws.close());
  stream.pipe(upstream).pipe(stream);
}
