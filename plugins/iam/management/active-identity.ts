/** An identity that something new may rest on. The share lock keeps it from being suspended in the same instant. */
import { IamError } from '#core/iam/iam-error.ts';
import type { Sql } from '#core/kernel/database.ts';
import { rows } from '../storage.ts';

export async function activeIdentity(tx: Sql, tenantId: string, key: string, kinds: readonly string[]): Promise<void> {
  const [found] = await rows<{ kind: string; status: string }>(
    tx,
    'select kind, status from iam.identities where id = $1 and tenant_id = $2 for share',
    [key, tenantId],
  );
  if (found === undefined) throw new IamError('NOT_FOUND', 'there is no such identity in the tenant');
  if (found.status !== 'active' || !kinds.includes(found.kind)) {
    throw new IamError('INVALID_IDENTITY', `the identity must be active and a ${kinds.join(' or ')}`);
  }
}
