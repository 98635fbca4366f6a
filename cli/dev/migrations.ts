/** The product's migrations, with what must follow them: the state tables of the code, written into the database. */
import { fileURLToPath } from 'node:url';
import { STATE_TABLES } from '#core/states.ts';
import { syncStateTables } from '#db/state-sync.ts';
import type { PgDatabase } from '#plugins/database/node-postgres.ts';
import { type Migrated, migrate } from './migrate.ts';

export const MIGRATIONS_DIR = fileURLToPath(new URL('../../migrations', import.meta.url));

export function migrateProduct(db: PgDatabase): Promise<Migrated> {
  return migrate(db, MIGRATIONS_DIR, [(tx) => syncStateTables(tx, STATE_TABLES)]);
}
