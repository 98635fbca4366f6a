/**
 * How the embedded engine speaks to its tables: database errors become the identity service's own, and a change runs
 * under the policy epoch that allowed it, with its audit record in the same commit.
 */
import { IamError, type IamErrorCode } from '#core/iam/iam-error.ts';
import { canonicalJson, type Json } from '#core/kernel/canonical-json.ts';
import {
  type Database,
  DatabaseUnavailable,
  type Row,
  type Sql,
  SqlError,
  type SqlValue,
} from '#core/kernel/database.ts';

/** The policies that allowed a change were changed before it could commit; decide again. */
export class EpochPassed extends Error {
  override name = 'EpochPassed';
}

const IN_USE = /_in_use$/;
const BUSY = new Set(['40001', '40P01', '53300', '57014', '57P01', '57P02', '57P03']);

function refusal(e: SqlError): [IamErrorCode, string] | undefined {
  if (BUSY.has(e.sqlstate)) return ['STORAGE_BUSY', 'the database is busy; repeat the call'];
  if (e.sqlstate === '23505') return ['CONFLICT', 'it exists already'];
  if (e.sqlstate === '23503') {
    return IN_USE.test(e.constraint ?? '')
      ? ['RESOURCE_IN_USE', 'it is still in use']
      : ['NOT_FOUND', 'it names something that does not exist'];
  }
  if (e.sqlstate === '23514') return ['INVALID_INPUT', `refused by ${e.constraint ?? 'a rule of the database'}`];
  if (e.sqlstate === 'BC006') return ['LIMIT_EXCEEDED', e.message];
  // A value that the database cannot hold, such as a NUL character.
  if (e.sqlstate.startsWith('22')) return ['INVALID_INPUT', 'a value cannot be stored'];
  return undefined;
}

/** An IamError where one says it; anything else stays what it is and ends as an internal error. */
export function storageError(e: unknown): unknown {
  if (e instanceof DatabaseUnavailable) return new IamError('STORAGE_BUSY', 'the database does not answer');
  if (!(e instanceof SqlError)) return e;
  if (e.sqlstate === 'BC005') return new EpochPassed(e.message);
  const known = refusal(e);
  return known === undefined ? e : new IamError(...known);
}

export async function rows<R extends Row = Row>(
  sql: Sql,
  text: string,
  params: readonly SqlValue[] = [],
): Promise<R[]> {
  try {
    return await sql.query<R>(text, params);
  } catch (e) {
    throw storageError(e);
  }
}

export interface AuditRecord {
  readonly tenantId: string;
  readonly action: string;
  readonly actorId: string;
  readonly resourceId: string;
  readonly outcome: 'allow' | 'deny';
  readonly rootOverride?: boolean;
  readonly metadata?: Readonly<Record<string, Json | undefined>>;
  readonly sessionContext: Readonly<Record<string, Json | undefined>>;
}

export async function audit(sql: Sql, records: readonly AuditRecord[]): Promise<void> {
  if (records.length === 0) return;
  const sorted = [...records].sort((a, b) => (a.tenantId < b.tenantId ? -1 : a.tenantId > b.tenantId ? 1 : 0));
  // One statement, tenants in order: two batches never wait for each other's chain heads crosswise.
  await rows(
    sql,
    'select iam.audit_append(r) from jsonb_array_elements($1::jsonb) with ordinality as e (r, n) order by n',
    [canonicalJson(sorted as unknown as Json)],
  );
}

/** A change under the epoch of its decision. Throws EpochPassed when policies changed first. */
export async function change<T>(db: Database, epoch: number, fn: (tx: Sql) => Promise<T>): Promise<T> {
  try {
    return await db.transaction(async (tx) => {
      await rows(tx, 'select policy_fence($1)', [epoch]);
      return await fn(tx);
    });
  } catch (e) {
    throw storageError(e);
  }
}
