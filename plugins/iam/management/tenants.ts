/** Tenants: a tree under the platform's own. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import { insertCredential, issuerCeilings, SESSION_SECONDS } from './credentials.ts';
import { bindOwner, insertIdentity } from './identities.ts';
import {
  type Call,
  changed,
  document,
  id,
  type Methods,
  method,
  name,
  only,
  page,
  savedDocument,
  version,
} from './method.ts';

const DEPTH_MAX = 8;

const slug = z.string().regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/);

const TENANT = `id, parent_id as "parentId", type, name, slug, status, boundary, version, iam.ms(created_at) as "createdAt"`;

const OWNER_DOCUMENT = {
  version: 1,
  statements: [{ sid: 'Owner', effect: 'allow', actions: ['*'], resources: ['*'] }],
};

export async function insertTenant(
  tx: Sql,
  t: { id?: string; parentId: string | null; type: string; name: string; slug: string; boundary?: unknown },
): Promise<Record<string, unknown>> {
  const [made] = await rows(
    tx,
    `insert into iam.tenants (id, parent_id, type, name, slug, boundary) values ($1, $2, $3, $4, $5, $6) returning ${TENANT}`,
    [
      t.id ?? newId('tenant'),
      t.parentId,
      t.type,
      t.name,
      t.slug,
      t.boundary === undefined ? null : JSON.stringify(t.boundary),
    ],
  );
  // Every tenant has an owner role from its first moment; who holds it is another matter.
  await rows(
    tx,
    "insert into iam.roles (id, tenant_id, name, document, protected, owner) values ($1, $2, 'Owner', $3, true, true)",
    [newId('role'), String(made!['id']), JSON.stringify(OWNER_DOCUMENT)],
  );
  return made!;
}

async function createTenant(
  call: Call,
  input: {
    tenantId: string;
    type: 'organization' | 'project';
    name: string;
    slug: string;
    boundary?: unknown;
    owner?: { name: string } | undefined;
  },
) {
  const boundary = input.boundary === undefined ? undefined : savedDocument(call, input.boundary);
  const ceilings = input.owner === undefined ? [] : issuerCeilings(call);
  return call.change({ tenantId: input.tenantId, action: 'iam:tenants:create', resource: 'tenants' }, async (tx) => {
    const depth = await rows(tx, 'select 1 from iam.tenant_chain($1)', [input.tenantId]);
    if (depth.length >= DEPTH_MAX) throw new IamError('LIMIT_EXCEEDED', `tenants nest at most ${DEPTH_MAX} deep`);
    const tenant = await insertTenant(tx, { ...input, parentId: input.tenantId, boundary });
    const tenantId = String(tenant['id']);
    const recorded = { resourceId: tenantId };
    if (input.owner === undefined) return [{ tenant }, recorded];
    const owner = await insertIdentity(tx, { tenantId, kind: 'user', name: input.owner.name });
    const identityId = String(owner['id']);
    await bindOwner(tx, tenantId, identityId);
    const made = await insertCredential(tx, {
      kind: 'ses',
      tenantId,
      identityId,
      name: 'first',
      seconds: SESSION_SECONDS,
      boundaries: ceilings,
    });
    return [{ tenant, owner, session: { ...made.row, token: made.token } }, recorded];
  });
}

export const tenantMethods: Methods = {
  'tenants/create': method(
    z.strictObject({
      /** The parent. */
      tenantId: id,
      type: z.enum(['organization', 'project']).default('organization'),
      name,
      slug,
      boundary: document.optional(),
      owner: z.strictObject({ name }).optional(),
    }),
    createTenant,
  ),

  'tenants/list': method(z.strictObject({ tenantId: id, ...page }), async (call, input) => {
    await call.allow({ tenantId: input.tenantId, action: 'iam:tenants:read', resource: 'tenants' });
    const tenants = await call.read(
      `select ${TENANT} from iam.tenants where parent_id = $1 and id > $2 order by id limit $3`,
      [input.tenantId, input.after, input.limit],
    );
    return { tenants };
  }),

  'tenants/get': method(z.strictObject({ tenantId: id }), async (call, input) => {
    await call.allow({ tenantId: input.tenantId, action: 'iam:tenants:read', resource: `tenants/${input.tenantId}` });
    return {
      tenant: only(await call.read(`select ${TENANT} from iam.tenants where id = $1`, [input.tenantId]), 'tenant'),
    };
  }),

  'tenants/update': method(
    z.strictObject({
      tenantId: id,
      name: name.optional(),
      status: z.enum(['active', 'suspended', 'deleted']).optional(),
      boundary: document.nullable().optional(),
      version,
    }),
    async (call, input) => {
      const boundary = input.boundary == null ? null : JSON.stringify(savedDocument(call, input.boundary));
      const target = { tenantId: input.tenantId, action: 'iam:tenants:update', resource: `tenants/${input.tenantId}` };
      return call.change(target, async (tx) => {
        const updated = await rows(
          tx,
          `update iam.tenants set name = coalesce($2, name), status = coalesce($3, status),
             boundary = case when $4 then $5::jsonb else boundary end, version = version + 1
           where id = $1 and ($6::bigint is null or version = $6) and (type <> 'root' or coalesce($3, 'active') = 'active')
           returning ${TENANT}`,
          [
            input.tenantId,
            input.name ?? null,
            input.status ?? null,
            input.boundary !== undefined,
            boundary,
            input.version ?? null,
          ],
        );
        if (updated.length === 0 && input.version === undefined) {
          throw new IamError('INVALID_TRANSITION', 'the root tenant stays active');
        }
        const tenant = await changed(tx, updated, 'tenants', input.tenantId);
        return [{ tenant }, { resourceId: input.tenantId, metadata: { status: input.status } }];
      });
    },
  ),
};
