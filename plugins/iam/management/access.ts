/** Policies and roles of one tenant. Everything they name stands in the same tenant. */
import { z } from 'zod';
import { evaluate } from '#core/iam/evaluate.ts';
import type { Context } from '#core/iam/glob.ts';
import { IamError } from '#core/iam/iam-error.ts';
import { parsePolicy } from '#core/iam/policy.ts';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import { deleter, lister } from './collections.ts';
import {
  type Call,
  changed,
  document,
  id,
  type Methods,
  method,
  name,
  only,
  savedDocument,
  version,
} from './method.ts';

const INHERITS_MAX = 20;

const POLICY = 'id, tenant_id as "tenantId", name, document, version, iam.ms(created_at) as "createdAt"';
const ROLE = `id, tenant_id as "tenantId", name, document, protected, version, iam.ms(created_at) as "createdAt",
  (select coalesce(jsonb_agg(policy_id order by policy_id), '[]') from iam.role_policies where role_id = r.id) as "policyIds",
  (select coalesce(jsonb_agg(inherits_id order by inherits_id), '[]') from iam.role_inherits where role_id = r.id) as inherits`;
const roleBody = {
  document: document.optional(),
  permissions: z.array(z.string()).min(1).max(128).optional(),
  policyIds: z.array(id).max(64).optional(),
  inherits: z.array(id).max(INHERITS_MAX).optional(),
};

function roleDocument(call: Call, input: { document?: unknown; permissions?: string[] | undefined }) {
  if (input.document !== undefined && input.permissions !== undefined) {
    throw new IamError('INVALID_INPUT', 'document and permissions exclude each other');
  }
  if (input.document !== undefined) return savedDocument(call, input.document);
  if (input.permissions === undefined) return undefined;
  const all = { sid: 'RolePermissions', effect: 'allow', actions: input.permissions, resources: ['*'] };
  return savedDocument(call, { version: 1, statements: [all] });
}

/** Replaces what the role refers to; undefined leaves it. */
async function refer(
  tx: Sql,
  tenantId: string,
  roleId: string,
  input: { policyIds?: string[] | undefined; inherits?: string[] | undefined },
): Promise<void> {
  if (input.policyIds !== undefined) {
    await rows(tx, 'delete from iam.role_policies where role_id = $1', [roleId]);
    const added = await rows(
      tx,
      'insert into iam.role_policies select $1, id from iam.policies where tenant_id = $2 and id = any($3) returning policy_id',
      [roleId, tenantId, input.policyIds],
    );
    if (added.length < new Set(input.policyIds).size)
      throw new IamError('NOT_FOUND', 'policyIds: there is no such policy');
  }
  if (input.inherits === undefined) return;
  await rows(tx, 'delete from iam.role_inherits where role_id = $1', [roleId]);
  const added = await rows(
    tx,
    'insert into iam.role_inherits select $1, id from iam.roles where tenant_id = $2 and not protected and id = any($3) returning inherits_id',
    [roleId, tenantId, input.inherits],
  );
  if (added.length < new Set(input.inherits).size) {
    throw new IamError('NOT_FOUND', 'inherits: there is no such role that may be inherited');
  }
  const [circle] = await rows(
    tx,
    `with recursive reach (id) as (
       select inherits_id from iam.role_inherits where role_id = $1
       union select i.inherits_id from reach join iam.role_inherits i on i.role_id = reach.id)
     select 1 from reach where id = $1`,
    [roleId],
  );
  if (circle !== undefined) throw new IamError('INVALID_INPUT', 'inherits: a role may not inherit itself');
}

async function roleRow(sql: Sql, tenantId: string, roleId: string) {
  return only(
    await rows(sql, `select ${ROLE} from iam.roles r where id = $1 and tenant_id = $2`, [roleId, tenantId]),
    'role',
  );
}

/** Serialises changes of a tenant's roles, so that two halves of a circle cannot slip past each other. */
async function lockRoles(tx: Sql, tenantId: string): Promise<void> {
  await rows(tx, 'select 1 from iam.tenants where id = $1 for no key update', [tenantId]);
}

const policyMethods: Methods = {
  'policies/create': method(z.strictObject({ tenantId: id, name, document }), (call, input) => {
    const saved = savedDocument(call, input.document);
    return call.change(
      { tenantId: input.tenantId, action: 'iam:policies:create', resource: 'policies' },
      async (tx) => {
        const [policy] = await rows(
          tx,
          `insert into iam.policies (id, tenant_id, name, document) values ($1, $2, $3, $4) returning ${POLICY}`,
          [newId('policy'), input.tenantId, input.name, JSON.stringify(saved)],
        );
        return [{ policy }, { resourceId: String(policy!['id']) }];
      },
    );
  }),
  'policies/update': method(
    z.strictObject({ tenantId: id, policyId: id, name: name.optional(), document: document.optional(), version }),
    (call, input) => {
      const saved = input.document === undefined ? null : JSON.stringify(savedDocument(call, input.document));
      const target = {
        tenantId: input.tenantId,
        action: 'iam:policies:update',
        resource: `policies/${input.policyId}`,
      };
      return call.change(target, async (tx) => {
        const updated = await rows(
          tx,
          `update iam.policies set name = coalesce($3, name), document = coalesce($4::jsonb, document), version = version + 1
           where id = $1 and tenant_id = $2 and ($5::bigint is null or version = $5) returning ${POLICY}`,
          [input.policyId, input.tenantId, input.name ?? null, saved, input.version ?? null],
        );
        const policy = await changed(tx, updated, 'policies', input.policyId);
        return [{ policy }, { resourceId: input.policyId }];
      });
    },
  ),
  'policies/list': lister('policies', 'iam:policies:read', POLICY, 'policies'),
  'policies/get': method(z.strictObject({ tenantId: id, policyId: id }), async (call, input) => {
    await call.allow({ tenantId: input.tenantId, action: 'iam:policies:read', resource: `policies/${input.policyId}` });
    const found = await call.read(`select ${POLICY} from iam.policies where id = $1 and tenant_id = $2`, [
      input.policyId,
      input.tenantId,
    ]);
    return { policy: only(found, 'policy') };
  }),
  'policies/delete': deleter('policies', 'policyId', 'iam:policies:delete', 'policies'),
  'policies/test': method(
    z.strictObject({
      tenantId: id,
      document,
      action: z.string().min(1).max(512),
      resource: z.string().min(1).max(2048),
      context: z.record(z.string(), z.unknown()).optional(),
    }),
    async (call, input) => {
      await call.allow({ tenantId: input.tenantId, action: 'iam:policies:test', resource: 'policies' });
      // Without the catalog: one tries a document before what it names exists.
      const q = { action: input.action, resource: input.resource, context: (input.context ?? {}) as Context };
      return evaluate(q, [parsePolicy(input.document)]);
    },
  ),
};

const roleMethods: Methods = {
  'roles/create': method(z.strictObject({ tenantId: id, name, ...roleBody }), (call, input) => {
    const saved = roleDocument(call, input);
    return call.change({ tenantId: input.tenantId, action: 'iam:roles:create', resource: 'roles' }, async (tx) => {
      await lockRoles(tx, input.tenantId);
      const roleId = newId('role');
      await rows(tx, 'insert into iam.roles (id, tenant_id, name, document) values ($1, $2, $3, $4)', [
        roleId,
        input.tenantId,
        input.name,
        saved === undefined ? null : JSON.stringify(saved),
      ]);
      await refer(tx, input.tenantId, roleId, input);
      return [{ role: await roleRow(tx, input.tenantId, roleId) }, { resourceId: roleId }];
    });
  }),
  'roles/update': method(
    z.strictObject({ tenantId: id, roleId: id, name: name.optional(), ...roleBody, version }),
    (call, input) => {
      const saved = roleDocument(call, input);
      const target = { tenantId: input.tenantId, action: 'iam:roles:update', resource: `roles/${input.roleId}` };
      return call.change(target, async (tx) => {
        await lockRoles(tx, input.tenantId);
        const updated = await rows(
          tx,
          `update iam.roles set name = coalesce($3, name), document = coalesce($4::jsonb, document), version = version + 1
           where id = $1 and tenant_id = $2 and not protected and ($5::bigint is null or version = $5) returning id`,
          [
            input.roleId,
            input.tenantId,
            input.name ?? null,
            saved === undefined ? null : JSON.stringify(saved),
            input.version ?? null,
          ],
        );
        await changed(tx, updated, 'roles', input.roleId);
        await refer(tx, input.tenantId, input.roleId, input);
        return [{ role: await roleRow(tx, input.tenantId, input.roleId) }, { resourceId: input.roleId }];
      });
    },
  ),
  'roles/list': lister('roles', 'iam:roles:read', ROLE, 'roles'),
  'roles/delete': deleter('roles', 'roleId', 'iam:roles:delete', 'roles', 'not protected'),
};

export const accessMethods: Methods = { ...policyMethods, ...roleMethods };
