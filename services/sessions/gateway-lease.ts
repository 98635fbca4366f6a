/**
 * The one row by which a gateway says that it lives: `leases('gateway:<id>')`. A gateway's id belongs to one process at
 * a time. A newer process takes it at once, without waiting for the older one's lease to run out, and the older one is
 * fenced by the epoch: a restarted gateway must not keep its machines out for the length of a lease.
 */
import type { Database } from '#core/kernel/database.ts';
import { read } from '#db/mutate.ts';

export interface GatewayLease {
  readonly epoch: number;
  readonly holder: string;
}

export async function takeGatewayLease(
  db: Database,
  gatewayId: string,
  holder: string,
  seconds: number,
): Promise<GatewayLease> {
  const [row] = await read<{ epoch: number }>(
    db,
    `insert into leases as l (name, holder, epoch, expires_at)
     values ($1, $2, 1, compute_now() + make_interval(secs => $3))
     on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at,
       epoch = case when l.holder = excluded.holder then l.epoch else l.epoch + 1 end, acquired_at = compute_now()
     returning epoch`,
    [`gateway:${gatewayId}`, holder, seconds],
  );
  return { epoch: row!.epoch, holder };
}

/**
 * Extends it, also when it ran out meanwhile, as long as nobody else took it. False: a newer process has it, and this
 * one is to stop.
 */
export async function renewGatewayLease(
  db: Database,
  gatewayId: string,
  lease: GatewayLease,
  seconds: number,
): Promise<boolean> {
  const rows = await read(
    db,
    `update leases set expires_at = compute_now() + make_interval(secs => $4)
     where name = $1 and holder = $2 and epoch = $3 returning 1`,
    [`gateway:${gatewayId}`, lease.holder, lease.epoch, seconds],
  );
  return rows.length > 0;
}

/** On an orderly stop: the rest of the lease protects nobody any more. */
export async function yieldGatewayLease(db: Database, gatewayId: string, lease: GatewayLease): Promise<void> {
  await read(db, 'select lease_release($1, $2, $3)', [`gateway:${gatewayId}`, lease.holder, lease.epoch]);
}
