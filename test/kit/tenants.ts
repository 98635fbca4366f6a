/** Tenants with an owner each, in the tables of the embedded IAM, and the tokens of those owners. */

import { ROOT } from '#core/iam/root.ts';
import { makeToken } from '#core/iam/token.ts';
import type { Database } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';

export interface TestTenant {
  readonly id: string;
  readonly identityId: string;
  /** A session of the owner; of the root tenant's with a second factor. */
  readonly token: string;
}

async function person(db: Database, tenantId: string, o: { root?: boolean; grants?: object }): Promise<TestTenant> {
  const [identityId, roleId] = [newId('identity'), newId('role')];
  const { token, hash } = makeToken('ses');
  await db.transaction(async (tx) => {
    await tx.query(
      "insert into iam.identities (id, tenant_id, kind, name, root_admin) values ($1, $2, 'user', $1, $3)",
      [identityId, tenantId, o.root === true],
    );
    if (o.grants !== undefined) {
      await tx.query('insert into iam.roles (id, tenant_id, name, document) values ($1, $2, $1, $3)', [
        roleId,
        tenantId,
        JSON.stringify(o.grants),
      ]);
      await tx.query('insert into iam.bindings (id, tenant_id, role_id, identity_id) values ($1, $2, $3, $4)', [
        newId('binding'),
        tenantId,
        roleId,
        identityId,
      ]);
    }
    await tx.query(
      `insert into iam.credentials (id, token_hash, kind, tenant_id, identity_id, mfa_at, expires_at)
       values ($1, $2, 'user', $3, $4, case when $5 then compute_now() end, compute_now() + interval '1 day')`,
      [newId('session'), hash, tenantId, identityId, o.root === true],
    );
  });
  return { id: tenantId, identityId, token };
}

const EVERYTHING = { version: 1, statements: [{ effect: 'allow', actions: ['*'], resources: ['*'] }] };

/** The platform's tenant with an operator whom no policy binds. */
export async function seedRoot(db: Database): Promise<TestTenant> {
  await db.query(
    "insert into iam.tenants (id, parent_id, type, name, slug) values ($1, null, 'root', 'Platform', 'platform') on conflict do nothing",
    [ROOT],
  );
  return person(db, ROOT, { root: true });
}

/** A customer; its owner may do everything in it, or what `grants` (a policy document) says. */
export async function seedTenant(db: Database, name: string, grants: object = EVERYTHING): Promise<TestTenant> {
  const id = newId('tenant');
  await db.query("insert into iam.tenants (id, parent_id, type, name, slug) values ($1, $2, 'organization', $3, $4)", [
    id,
    ROOT,
    name,
    `${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')}-${id.slice(-6)}`,
  ]);
  return person(db, id, { grants });
}

/** Somebody of a tenant who was granted nothing. */
export function seedStranger(db: Database, tenantId: string): Promise<TestTenant> {
  return person(db, tenantId, {});
}
