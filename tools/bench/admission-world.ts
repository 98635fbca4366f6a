/**
 * What the arms of the admission benchmark share: a durable Postgres, and a fleet in a template database of which each
 * arm gets a copy, so that no arm finds the rows of another.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrateProduct } from '#cli/dev/migrations.ts';
import { type PostgresServer, startPostgres } from '#cli/dev/postgres.ts';
import { removeState } from '#cli/dev/postgres-places.ts';
import { offerPool, seedFleet } from '#kit/fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from '#kit/tenants.ts';
import { openPg } from '#plugins/database/node-postgres.ts';

export interface AdmissionWorld {
  readonly poolId: string;
  /** One tenant a client: the row of a tenant's quota is locked through its commit. */
  readonly tenants: readonly TestTenant[];
  readonly server: PostgresServer;
  readonly stateDir: string;
  /** A copy of the template under this name. */
  copy(name: string): Promise<string>;
  close(): Promise<void>;
}

export async function openAdmissionWorld(o: { clients: number; nodes: number }): Promise<AdmissionWorld> {
  const stateDir = mkdtempSync(join(tmpdir(), 'better-compute-bench-'));
  const server = await startPostgres({ stateDir });
  const close = async () => {
    await server.stop();
    removeState(stateDir);
  };
  try {
    const db = openPg(server.url, { max: 2, statementTimeoutMs: 120_000 });
    await migrateProduct(db);
    const root = await seedRoot(db);
    const tenants: TestTenant[] = [];
    for (let i = 0; i < o.clients; i++) tenants.push(await seedTenant(db, `tenant ${i}`));
    const fleet = await seedFleet(db, { tenantId: root.id, nodes: o.nodes });
    for (const t of tenants) await offerPool(db, fleet, t.id, 1_000_000);
    await db.query(
      'create table bench_rows (id text primary key, tenant_id text not null, at timestamptz not null, body jsonb not null)',
    );
    // These alone: a table that was looked at while it was empty is planned as one that stays so.
    await db.query('vacuum analyze nodes, devices, node_capacity, node_specs');
    await db.close();
    return { poolId: fleet.poolId, tenants, server, stateDir, copy: (name) => copy(server, name), close };
  } catch (e) {
    await close();
    throw e;
  }
}

async function copy(server: PostgresServer, name: string): Promise<string> {
  const admin = openPg(server.urlOf('postgres'), { max: 1, statementTimeoutMs: 120_000 });
  try {
    await admin.query(`create database ${name} template better_compute strategy file_copy`);
  } finally {
    await admin.close();
  }
  return server.urlOf(name);
}
