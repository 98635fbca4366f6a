/**
 * One Postgres for the whole run, with a migrated template that each test file clones, and a local Neon proxy.
 * The data is temporary and goes when the run ends, also when the run is killed.
 */
import type { TestProject } from 'vitest/node';
import { migrateProduct } from '#cli/dev/migrations.ts';
import { startNeonProxy } from '#cli/dev/neon-proxy.ts';
import { startPostgres } from '#cli/dev/postgres.ts';
import { openPg } from '#plugins/database/node-postgres.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Connection string of the database `postgres`, where databases are made and dropped. */
    postgresUrl: string;
    templateDatabase: string;
    /** `host:port` of the Neon proxy before that server. */
    neonProxy: string;
  }
}

const TEMPLATE = 'better_compute';

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres({ maxConnections: 400 });
  try {
    const db = openPg(postgres.url, { max: 1 });
    try {
      await migrateProduct(db);
    } finally {
      await db.close();
    }
    const proxy = await startNeonProxy(postgres.url);
    project.provide('postgresUrl', postgres.urlOf('postgres'));
    project.provide('templateDatabase', TEMPLATE);
    project.provide('neonProxy', proxy.address);
    return async () => {
      await proxy.close();
      await postgres.stop();
    };
  } catch (e) {
    await postgres.stop();
    throw e;
  }
}
