/** Brings a deployment's database up to date; on an empty one it makes the first operator and organisation. */
import { sqlProblem } from '#db/sql-problem.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { type Bootstrap, bootstrapIam } from '#plugins/iam/bootstrap.ts';
import { migrateProduct } from './migrations.ts';

const STATEMENT_TIMEOUT_MS = 300_000;

/** `applied`: the migrations that were missing. Throws UNAVAILABLE. */
export async function setUpDatabase(
  url: string,
  organisation: { readonly name: string; readonly slug: string },
): Promise<Bootstrap & { readonly applied: readonly string[] }> {
  const db = openPg(url, { max: 1, applicationName: 'setup', statementTimeoutMs: STATEMENT_TIMEOUT_MS });
  try {
    const { applied } = await migrateProduct(db);
    return { applied, ...(await bootstrapIam(db, { organisation })) };
  } catch (e) {
    throw sqlProblem(e);
  } finally {
    await db.close();
  }
}
