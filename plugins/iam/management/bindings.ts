/** Groups and bindings: who holds which role, and for how long. */
import { z } from 'zod';
import { newId } from '#core/kernel/ids.ts';
import { fromMillis } from '#core/kernel/time.ts';
import { rows } from '../storage.ts';
import { activeIdentity } from './active-identity.ts';
import { deleter, lister } from './collections.ts';
import { id, type Methods, method, moment, name, only } from './method.ts';

const BINDING = `id, tenant_id as "tenantId", role_id as "roleId", case when identity_id is null then 'group' else 'identity' end as "subjectType",
  coalesce(identity_id, group_id) as "subjectId", iam.ms(starts_at) as "startsAt", iam.ms(expires_at) as "expiresAt"`;
const GROUP = 'id, tenant_id as "tenantId", name, iam.ms(created_at) as "createdAt"';

const at = (ms: number | undefined): string | null => (ms === undefined ? null : fromMillis(ms));

const groupMethods: Methods = {
  'groups/create': method(z.strictObject({ tenantId: id, name }), (call, input) =>
    call.change({ tenantId: input.tenantId, action: 'iam:groups:create', resource: 'groups' }, async (tx) => {
      const [group] = await rows(
        tx,
        `insert into iam.groups (id, tenant_id, name) values ($1, $2, $3) returning ${GROUP}`,
        [newId('group'), input.tenantId, input.name],
      );
      return [{ group }, { resourceId: String(group!['id']) }];
    }),
  ),
  'groups/list': lister('groups', 'iam:groups:read', GROUP, 'groups'),
  'groups/addMember': method(
    z.strictObject({ tenantId: id, groupId: id, identityId: id, expiresAt: moment.optional() }),
    (call, input) =>
      call.change(
        { tenantId: input.tenantId, action: 'iam:groups:update', resource: `groups/${input.groupId}` },
        async (tx) => {
          await activeIdentity(tx, input.tenantId, input.identityId, ['user', 'service', 'agent']);
          const added = await rows(
            tx,
            `insert into iam.memberships (group_id, identity_id, expires_at) select id, $3, $4 from iam.groups where id = $1 and tenant_id = $2
             on conflict (group_id, identity_id) do update set expires_at = excluded.expires_at returning group_id`,
            [input.groupId, input.tenantId, input.identityId, at(input.expiresAt)],
          );
          only(added, 'group');
          return [{ added: true }, { resourceId: input.groupId, metadata: { identityId: input.identityId } }];
        },
      ),
  ),
  'groups/removeMember': method(z.strictObject({ tenantId: id, groupId: id, identityId: id }), (call, input) =>
    call.change(
      { tenantId: input.tenantId, action: 'iam:groups:update', resource: `groups/${input.groupId}` },
      async (tx) => {
        const gone = await rows(
          tx,
          `delete from iam.memberships m using iam.groups g where g.id = m.group_id and g.tenant_id = $2
             and m.group_id = $1 and m.identity_id = $3 returning m.group_id`,
          [input.groupId, input.tenantId, input.identityId],
        );
        only(gone, 'membership');
        return [{ removed: true }, { resourceId: input.groupId, metadata: { identityId: input.identityId } }];
      },
    ),
  ),
};

// `window` and `eligible` are refused as unknown fields: a binding that silently ignored them would grant too much.
const bindingMethods: Methods = {
  'bindings/create': method(
    z.strictObject({
      tenantId: id,
      subjectType: z.enum(['identity', 'group']),
      subjectId: id,
      roleId: id,
      startsAt: moment.optional(),
      expiresAt: moment.optional(),
    }),
    (call, input) =>
      call.change({ tenantId: input.tenantId, action: 'iam:bindings:create', resource: 'bindings' }, async (tx) => {
        const isIdentity = input.subjectType === 'identity';
        if (isIdentity) await activeIdentity(tx, input.tenantId, input.subjectId, ['user', 'service', 'agent']);
        else
          only(
            await rows(tx, 'select 1 from iam.groups where id = $1 and tenant_id = $2', [
              input.subjectId,
              input.tenantId,
            ]),
            'group',
          );
        const made = await rows(
          tx,
          `insert into iam.bindings (id, tenant_id, role_id, identity_id, group_id, starts_at, expires_at)
           select $1, tenant_id, id, $4, $5, $6, $7 from iam.roles where id = $3 and tenant_id = $2 returning ${BINDING}`,
          [
            newId('binding'),
            input.tenantId,
            input.roleId,
            isIdentity ? input.subjectId : null,
            isIdentity ? null : input.subjectId,
            at(input.startsAt),
            at(input.expiresAt),
          ],
        );
        const binding = only(made, 'role');
        return [
          { binding },
          { resourceId: String(binding['id']), metadata: { roleId: input.roleId, subjectId: input.subjectId } },
        ];
      }),
  ),
  'bindings/list': lister('bindings', 'iam:bindings:read', BINDING, 'bindings'),
  'bindings/delete': deleter('bindings', 'bindingId', 'iam:bindings:delete', 'bindings'),
};

export const subjectMethods: Methods = { ...groupMethods, ...bindingMethods };
