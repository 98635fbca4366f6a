/**
 * Statements and transactions over one connection of node-postgres' client, which the Neon driver's WebSocket client
 * is too. Values are converted here and nowhere else, so that the handles cannot differ.
 */
import { DatabaseUnavailable, type Row, type Sql, SqlError, type SqlValue } from '#core/kernel/database.ts';
import { databaseFailure } from './failures.ts';
import { decodeRows, encodeParams, type RawColumn, type RawRow, rawTypes } from './values.ts';

export interface RawResult {
  readonly command: string;
  readonly fields: readonly RawColumn[];
  readonly rows: readonly RawRow[];
}

/** The part of a client that is used. */
export interface PgSession {
  query(config: {
    text: string;
    values?: (string | null)[];
    name?: string;
    rowMode: 'array';
    queryMode?: string;
    types: typeof rawTypes;
  }): Promise<unknown>;
}

/** One statement in the extended protocol: a second one behind a semicolon is refused, as over HTTP. */
export async function runStatement<R extends Row>(
  session: PgSession,
  text: string,
  params?: readonly SqlValue[],
  name?: string,
): Promise<R[]> {
  const config = {
    text,
    values: encodeParams(params),
    rowMode: 'array',
    queryMode: 'extended',
    types: rawTypes,
  } as const;
  let result: RawResult;
  try {
    result = (await session.query(name === undefined ? config : { ...config, name })) as RawResult;
  } catch (e) {
    throw databaseFailure(e);
  }
  return decodeRows<R>(result.fields, result.rows);
}

/** Several statements without parameters, in the simple protocol. Gives the last one's command tag. */
export async function runScript(session: PgSession, text: string): Promise<string> {
  try {
    const result = (await session.query({ text, rowMode: 'array', types: rawTypes })) as RawResult | RawResult[];
    return (Array.isArray(result) ? result.at(-1) : result)?.command ?? '';
  } catch (e) {
    throw databaseFailure(e);
  }
}

/** What became of a transaction whose connection is still good. */
export type TransactionEnd<T> = { readonly value: T } | { readonly failed: unknown };

/**
 * BEGIN, fn, COMMIT. `failed` is what fn threw, after a clean rollback. Throws when the connection must be dropped.
 * A COMMIT that the server answers with ROLLBACK (fn swallowed an error) is a failure, not a success.
 * The `tx` handle is dead once the transaction is over, so that a forgotten await cannot write outside it.
 */
export async function runTransaction<T>(
  session: PgSession,
  begin: string,
  fn: (tx: Sql & { script(text: string): Promise<void> }) => Promise<T>,
  nameOf: (text: string) => string | undefined = () => undefined,
): Promise<TransactionEnd<T>> {
  let open = true;
  let lost = false;
  const inside = async <V>(run: () => Promise<V>): Promise<V> => {
    if (!open) throw new Error('the transaction is over: a statement was not awaited inside it');
    try {
      return await run();
    } catch (e) {
      lost ||= e instanceof DatabaseUnavailable;
      throw e;
    }
  };
  const tx = {
    query: <R extends Row>(text: string, params?: readonly SqlValue[]) =>
      inside(() => runStatement<R>(session, text, params, nameOf(text))),
    script: (text: string) => inside(async () => void (await runScript(session, text))),
  };

  await runScript(session, begin);
  let value: T;
  try {
    value = await fn(tx);
  } catch (e) {
    open = false;
    if (lost) throw e;
    await runScript(session, 'rollback');
    return { failed: e };
  }
  open = false;
  const tag = await runScript(session, 'commit');
  if (tag === 'COMMIT') return { value };
  return {
    failed: new SqlError('the transaction was rolled back: one of its statements had failed', { sqlstate: '25P02' }),
  };
}
