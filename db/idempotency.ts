/**
 * The same key with the same request replays the stored answer; with another request it is refused. The answer is
 * stored in the transaction that had the effect, so an answer without its effect, or the reverse, cannot exist.
 */
import { canonicalHash, type Json } from '#core/kernel/canonical-json.ts';
import type { Sql } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';

export interface IdempotencyScope {
  readonly tenantId: string;
  readonly identityId: string;
  readonly operation: string;
  /** The Idempotency-Key header. */
  readonly key: string;
}

/** What makes two requests the same: operation and the validated input, white space and member order aside. */
export function fingerprintOf(operation: string, input: Json): string {
  return canonicalHash([operation, input]);
}

/** What was answered under this key; undefined when nothing was. Throws IDEMPOTENCY_MISMATCH for another request. */
export async function storedAnswer<T extends Json>(
  db: Sql,
  scope: IdempotencyScope,
  fingerprint: string,
): Promise<T | undefined> {
  const [stored] = await db.query<{ fingerprint: string; response: T }>(
    `select fingerprint, response from idempotency_keys
     where tenant_id = $1 and identity_id = $2 and operation = $3 and key = $4`,
    [scope.tenantId, scope.identityId, scope.operation, scope.key],
  );
  if (stored !== undefined && stored.fingerprint !== fingerprint) {
    throw problem('IDEMPOTENCY_MISMATCH', `the key was used with another ${scope.operation} request`);
  }
  return stored?.response;
}

/**
 * Runs `fn` once for the key, inside `tx`; every later call answers what the first answered. A concurrent call with
 * the same key waits for the first to commit or roll back.
 */
export async function once<T extends Json>(
  tx: Sql,
  scope: IdempotencyScope,
  fingerprint: string,
  fn: () => Promise<T>,
): Promise<T> {
  const at = [scope.tenantId, scope.identityId, scope.operation, scope.key];
  const [mine] = await tx.query(
    `insert into idempotency_keys (tenant_id, identity_id, operation, key, fingerprint, status, response)
     values ($1, $2, $3, $4, $5, 0, 'null') on conflict do nothing returning 1`,
    [...at, fingerprint],
  );
  if (mine === undefined) {
    const stored = await storedAnswer<T>(tx, scope, fingerprint);
    if (stored === undefined) throw problem('CONTENTION', 'the same request is being handled at this moment');
    return stored;
  }
  const response = await fn();
  await tx.query(
    `update idempotency_keys set status = 1, response = $5
     where tenant_id = $1 and identity_id = $2 and operation = $3 and key = $4`,
    [...at, JSON.stringify(response)],
  );
  return response;
}
