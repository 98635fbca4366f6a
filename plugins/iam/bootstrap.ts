/**
 * The first start of the embedded engine: the platform's tenant, one organisation, an owner in each, and the credentials
 * to begin with. Repeating it makes what is missing and returns credentials only where it made them.
 *
 * The operator's session counts as one with a second factor although none was asked for. That is tolerable only where
 * nobody else can reach the service, so a bind address that is not loopback is refused.
 */
import ipaddr from 'ipaddr.js';
import { ROOT } from '#core/iam/root.ts';
import type { Database, Sql } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';
import { insertCredential } from './management/credentials.ts';
import { bindOwner, insertIdentity } from './management/identities.ts';
import { insertTenant } from './management/tenants.ts';
import { rows } from './storage.ts';

const SECONDS = 365 * 86_400;

export interface Bootstrap {
  readonly rootTenantId: string;
  readonly tenantId: string;
  /** Only from the call that made them; keep them readable by their owner alone. */
  readonly operatorToken?: string;
  readonly tenantToken?: string;
  readonly tenantApiKey?: string;
}

export interface BootstrapOptions {
  /** The address that the service will listen on. */
  readonly host?: string;
  readonly organisation?: { readonly name: string; readonly slug: string };
}

export function isLoopback(host: string): boolean {
  if (host === 'localhost') return true;
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  return ipaddr.isValid(bare) && ipaddr.process(bare).range() === 'loopback';
}

async function person(tx: Sql, tenantId: string, name: string, root: boolean): Promise<string> {
  const identity = await insertIdentity(tx, { tenantId, kind: 'user', name, rootAdmin: root });
  const identityId = String(identity['id']);
  await bindOwner(tx, tenantId, identityId);
  const made = await insertCredential(tx, {
    kind: 'ses',
    tenantId,
    identityId,
    name: 'first',
    seconds: SECONDS,
    mfa: root,
  });
  return made.token;
}

async function serviceKey(tx: Sql, tenantId: string): Promise<string> {
  const identity = await insertIdentity(tx, { tenantId, kind: 'service', name: 'automation' });
  const identityId = String(identity['id']);
  await bindOwner(tx, tenantId, identityId);
  const made = await insertCredential(tx, { kind: 'key', tenantId, identityId, name: 'first', seconds: SECONDS });
  return made.token;
}

/** Throws INVALID_REQUEST for a host that others can reach. */
export async function bootstrapIam(db: Database, options: BootstrapOptions = {}): Promise<Bootstrap> {
  const { host = '127.0.0.1', organisation = { name: 'Acme', slug: 'acme' } } = options;
  if (!isLoopback(host)) {
    throw problem('INVALID_REQUEST', `${host} can be reached by others; the first session is made on loopback only`, {
      errors: [{ field: 'host', message: 'use 127.0.0.1, or connect a remote identity service' }],
    });
  }
  return db.transaction(async (tx) => {
    // Two first starts at once: the second waits here and then finds everything made.
    await rows(tx, 'select 1 from iam.policy_epoch for update');
    const [root] = await rows<{ id: string }>(tx, 'select id from iam.tenants where parent_id is null');
    let made: Omit<Bootstrap, 'rootTenantId' | 'tenantId'> = {};
    if (root === undefined) {
      await insertTenant(tx, { id: ROOT, parentId: null, type: 'root', name: 'Platform', slug: 'platform' });
      made = { operatorToken: await person(tx, ROOT, 'operator', true) };
    }
    const rootTenantId = root?.id ?? ROOT;
    // The first organisation, whatever it is called by now; further ones are made by the operator.
    const [found] = await rows<{ id: string }>(
      tx,
      "select id from iam.tenants where parent_id = $1 and type = 'organization' order by created_at, id limit 1",
      [rootTenantId],
    );
    if (found !== undefined) return { rootTenantId, tenantId: found.id, ...made };
    const tenant = await insertTenant(tx, { ...organisation, parentId: rootTenantId, type: 'organization' });
    const tenantId = String(tenant['id']);
    made = {
      ...made,
      tenantToken: await person(tx, tenantId, 'owner', false),
      tenantApiKey: await serviceKey(tx, tenantId),
    };
    return { rootTenantId, tenantId, ...made };
  });
}
