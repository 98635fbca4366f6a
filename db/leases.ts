/**
 * Leases with fencing epochs. The row in Postgres decides; whoever holds it passes `{name, epoch}` to mutate(), which
 * refuses to commit once the lease has a newer owner.
 */
import type { Sql } from '#core/kernel/database.ts';
import type { Instant } from '#core/kernel/time.ts';

export interface HeldLease {
  readonly name: string;
  readonly holder: string;
  readonly epoch: number;
  readonly expiresAt: Instant;
}

/** Takes or renews the lease; undefined when somebody else holds it. */
export async function acquireLease(
  db: Sql,
  name: string,
  holder: string,
  seconds: number,
): Promise<HeldLease | undefined> {
  const [row] = await db.query<{ epoch: number; expires_at: Instant }>(
    'select epoch, expires_at from lease_acquire($1, $2, $3)',
    [name, holder, seconds],
  );
  return row === undefined ? undefined : { name, holder, epoch: row.epoch, expiresAt: row.expires_at };
}

/** Gives it up at once, if it is still held under this epoch. */
export async function releaseLease(db: Sql, lease: HeldLease): Promise<void> {
  await db.query('select lease_release($1, $2, $3)', [lease.name, lease.holder, lease.epoch]);
}
