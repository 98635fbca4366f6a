/**
 * A fleet in the books: site, pool, nodes that are ready and connected, with healthy GPUs; and machines that do at once
 * what their spec says. For tests and simulations of the control plane's own rules; the daemon has tests of its own.
 */
import type { Database } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';

export interface Fleet {
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly nodeIds: readonly string[];
}

export async function seedFleet(
  db: Database,
  o: { tenantId: string; nodes: number; gpus?: number; model?: string; name?: string },
): Promise<Fleet> {
  const [siteId, poolId] = [newId('site'), newId('pool')];
  const name = o.name ?? poolId;
  const nodeIds = Array.from({ length: o.nodes }, () => newId('node') as string).sort();
  await db.transaction(async (tx) => {
    await tx.query('insert into sites (id, tenant_id, name) values ($1, $2, $3)', [siteId, o.tenantId, `site-${name}`]);
    await tx.query(
      `insert into pools (id, site_id, tenant_id, name, class, gpu_model) values ($1, $2, $3, $4, 'metal-host', $5)`,
      [poolId, siteId, o.tenantId, name, o.model ?? 'h100'],
    );
    await tx.query(
      `insert into nodes (id, tenant_id, site_id, pool_id, name)
       select id, $2, $3, $4, 'n' || i from unnest($1::text[]) with ordinality as u (id, i)`,
      [nodeIds, o.tenantId, siteId, poolId],
    );
    await tx.query(`select transition_node(id, 'adopt', 'kit') from unnest($1::text[]) u (id)`, [nodeIds]);
    await tx.query(
      `update nodes set connectivity = 'connected', observed_generation = 1, epoch = 1, gateway_id = 'kit' where id = any($1::text[])`,
      [nodeIds],
    );
    // The gateway that holds their sessions; without its lease they would soon be unreachable, and rightly so.
    await tx.query(
      `insert into leases (name, holder, epoch, expires_at) values ('gateway:kit', 'kit', 1, compute_now() + interval '10 years')
       on conflict do nothing`,
    );
    await tx.query(
      `insert into node_specs (node_id, generation, spec, canonical, sha256)
       select id, 1, '{}', '{}', '' from unnest($1::text[]) u (id)`,
      [nodeIds],
    );
    await tx.query(
      `insert into devices (id, node_id, pool_id, class, stable_id, slot, health, attributes)
       select new_id('dev'), id, $2, 'gpu', 'GPU-' || id || '-' || s, s, 'healthy',
         jsonb_build_object('model', $3::text, 'numaNode', s / 4)
       from unnest($1::text[]) u (id), generate_series(0, $4::int - 1) s`,
      [nodeIds, poolId, o.model ?? 'h100', o.gpus ?? 8],
    );
    await tx.query('select node_refresh(id) from unnest($1::text[]) u (id)', [nodeIds]);
  });
  return { tenantId: o.tenantId, siteId, poolId, nodeIds };
}

/** Offers a pool to a tenant with a quota for GPUs, as offers.create leaves it. */
export async function offerPool(db: Database, fleet: Fleet, tenantId: string, gpus: number): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query('insert into pool_offers (id, pool_id, tenant_id, quota) values ($1, $2, $3, $4)', [
      newId('offer'),
      fleet.poolId,
      tenantId,
      JSON.stringify({ gpu: gpus }),
    ]);
    await tx.query(
      `insert into quotas (tenant_id, pool_id, resource, limit_count, source) values ($1, $2, 'gpu', $3, 'offer')`,
      [tenantId, fleet.poolId, gpus],
    );
  });
}

/** Every machine observes the newest spec it has been given. `lag` of them, drawn by `roll`, do not this time. */
export async function machinesObserve(db: Database, roll: () => number = () => 1, lag = 0): Promise<number> {
  const behind = await db.query<{ id: string; epoch: number; generation: number }>(
    `select n.id, n.epoch, s.generation from node_specs s join nodes n on n.id = s.node_id
     where s.generation > n.observed_generation order by n.id`,
  );
  let moved = 0;
  for (const n of behind) {
    if (roll() < lag) continue;
    await db.query('select node_observed($1, $2, $3)', [n.id, n.epoch, n.generation]);
    moved++;
  }
  return moved;
}
