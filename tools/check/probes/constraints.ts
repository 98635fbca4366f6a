/** Names of a freshly migrated database against the table that says what they mean. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { migrateProduct } from '#cli/dev/migrations.ts';
import { startPostgres } from '#cli/dev/postgres.ts';
import { STATE_TABLES } from '#core/states.ts';
import { CONSTRAINTS } from '#db/constraints.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import type { Finding } from '../gate.ts';

const TABLE = 'db/constraints.ts';
/** What a statement raises itself; the names stand in the errors alone. */
const RAISED = ['leases_epoch', 'nodes_epoch', 'join_tokens_uses_within'];
/** Written and checked with the state tables; only their generated writers could break them. */
const OF_STATES = STATE_TABLES.map((t) => `${t.table}_state`);

/** CHECK, UNIQUE, FOREIGN KEY, EXCLUDE, and unique indexes that are no constraint; primary keys are drawn, not given. */
const NAMES = `
  select conname as name from pg_constraint c join pg_namespace n on n.oid = c.connamespace
    where n.nspname = 'public' and contype in ('c', 'u', 'f', 'x') and conrelid <> 0
  union
  select i.relname from pg_index x join pg_class i on i.oid = x.indexrelid join pg_namespace n on n.oid = i.relnamespace
    where n.nspname = 'public' and x.indisunique and not x.indisprimary`;

async function namesOf(): Promise<string[]> {
  const server = await startPostgres({});
  const db = openPg(server.url, { max: 1 });
  try {
    await migrateProduct(db);
    return (await db.query<{ name: string }>(NAMES)).map((r) => r.name).sort();
  } finally {
    await db.close();
    await server.stop();
  }
}

function constraintFindings(names: readonly string[]): Finding[] {
  const unmapped = names.filter((n) => !Object.hasOwn(CONSTRAINTS, n) && !OF_STATES.includes(n));
  const gone = Object.keys(CONSTRAINTS).filter((n) => !names.includes(n) && !RAISED.includes(n));
  return [
    ...unmapped.map((n) => ({
      file: TABLE,
      what: `the constraint ${n} has no meaning: breaking it would answer INTERNAL`,
      mend: 'add a row that says which error it is and for which field, or bug(…) if no input can reach it',
    })),
    ...gone.map((n) => ({
      file: TABLE,
      what: `${n} is no constraint of the database`,
      mend: 'take the row out, or correct the name',
    })),
  ];
}

/** SQLSTATEs of ours that some migration raises and nobody turns into an error. */
function stateFindings(): Finding[] {
  const root = process.cwd();
  const migrations = readdirSync(join(root, 'migrations')).filter((f) => f.endsWith('.sql'));
  const sources = [...migrations.map((f) => `migrations/${f}`), 'db/state-sync.ts'];
  const known = ['db/sql-problem.ts', 'plugins/iam/storage.ts'].map((f) => readFileSync(join(root, f), 'utf8')).join();
  return sources.flatMap((file) => {
    const raised = [...readFileSync(join(root, file), 'utf8').matchAll(/errcode = '(BC\d{3})'/g)].map((m) => m[1]!);
    return [...new Set(raised)]
      .filter((state) => !known.includes(`'${state}'`))
      .map((state) => ({
        file,
        what: `SQLSTATE ${state} is raised and turned into no error`,
        mend: 'add a case for it to db/sql-problem.ts',
      }));
  });
}

console.log(JSON.stringify([...constraintFindings(await namesOf()), ...stateFindings()]));
