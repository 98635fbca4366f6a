/** A database of its own for a test file: a clone of the migrated template, or an empty one. */
import { inject } from 'vitest';
import type { Database } from '#core/kernel/database.ts';
import { openNeon } from '#plugins/database/neon.ts';
import { openPg, type PgDatabase, type PgOptions } from '#plugins/database/node-postgres.ts';

export interface TestDatabase {
  readonly db: PgDatabase;
  readonly url: string;
  /** The same database through the handle that Workers use. */
  readonly neon: Database;
  /** `host:port` for `PG_PROXY`. */
  readonly neonProxy: string;
  close(): Promise<void>;
}

export function testDatabase(options: PgOptions = {}): Promise<TestDatabase> {
  return create(inject('templateDatabase'), options);
}

/** Without migrations. */
export function emptyDatabase(options: PgOptions = {}): Promise<TestDatabase> {
  return create('template1', options);
}

let made = 0;

async function create(template: string, options: PgOptions): Promise<TestDatabase> {
  const admin = inject('postgresUrl');
  const name = `t_${process.pid}_${++made}_${crypto.randomUUID().slice(0, 8)}`;
  await onServer(admin, `create database ${name} template ${template}`);
  const url = new URL(admin);
  url.pathname = `/${name}`;
  const db = openPg(url.href, { max: 10, ...options });
  const neonProxy = inject('neonProxy');
  return {
    db,
    url: url.href,
    neon: openNeon(url.href, { localProxy: neonProxy }),
    neonProxy,
    async close() {
      await db.close();
      await onServer(admin, `drop database if exists ${name} with (force)`);
    },
  };
}

async function onServer(url: string, statement: string): Promise<void> {
  const db = openPg(url, { max: 1 });
  try {
    await db.query(statement);
  } finally {
    await db.close();
  }
}
