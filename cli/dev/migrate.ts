/**
 * Migrations: the files of a folder in the order of their names, each in one transaction together with the row that
 * records it. An applied file is never changed: its hash is kept, and another content is refused. Runs at once by
 * several processes are safe; the second waits and finds nothing to do.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sha256Hex } from '#core/kernel/canonical-json.ts';
import type { Sql } from '#core/kernel/database.ts';
import type { PgDatabase, ScriptSql } from '#plugins/database/node-postgres.ts';

/** Runs after the files, in one transaction, at every migration; must change nothing when nothing changed. */
export type AfterMigration = (tx: Sql) => Promise<void>;

export interface Migrated {
  readonly applied: readonly string[];
  readonly already: number;
}

const NAME = /^\d{4}_[a-z0-9_]+\.sql$/;
/** Any constant; it names the lock that serialises migrations of one database. */
const LOCK = 7_303_146;

export async function migrate(db: PgDatabase, dir: string, after: readonly AfterMigration[] = []): Promise<Migrated> {
  const files = readdirSync(dir)
    .filter((f) => NAME.test(f))
    .sort();
  await db.transaction(async (tx) => {
    await start(tx);
    await tx.script(`create table if not exists schema_migrations (
      name text primary key,
      sha256 text not null,
      applied_at timestamptz not null default clock_timestamp() -- time-ok: compute_now() is made by the first file
    )`);
  });
  const applied: string[] = [];
  for (const name of files) {
    const text = readFileSync(join(dir, name), 'utf8');
    const sha256 = sha256Hex(text);
    const ran = await db.transaction(async (tx) => {
      await start(tx);
      const [row] = await tx.query<{ sha256: string }>('select sha256 from schema_migrations where name = $1', [name]);
      if (row !== undefined) {
        if (row.sha256 === sha256) return false;
        throw new Error(`migration ${name} was applied with another content; write a new file instead of changing it`);
      }
      try {
        await tx.script(text);
      } catch (e) {
        throw new Error(`migration ${name} failed: ${(e as Error).message}`, { cause: e });
      }
      await tx.query('insert into schema_migrations (name, sha256) values ($1, $2)', [name, sha256]);
      return true;
    });
    if (ran) applied.push(name);
  }
  await db.transaction(async (tx) => {
    await start(tx);
    for (const step of after) await step(tx);
  });
  return { applied, already: files.length - applied.length };
}

/** One migration at a time, however long it takes. */
async function start(tx: ScriptSql): Promise<void> {
  await tx.script(`set local statement_timeout = 0; select pg_advisory_xact_lock(${LOCK})`);
}
