/** Identities: people, service accounts, and agents, which have a sponsor. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import { activeIdentity } from './active-identity.ts';
import { insertCredential, issuerCeilings, SESSION_SECONDS } from './credentials.ts';
import { type Call, document, id, type Methods, method, name, only, page, savedDocument } from './method.ts';

const attributes = z.record(z.string(), z.union([z.string().max(256), z.number(), z.boolean()]));

const IDENTITY = `id, tenant_id as "tenantId", kind, name, status, attributes, sponsor_id as "sponsorId", boundary, iam.ms(created_at) as "createdAt"`;

export interface NewIdentity {
  readonly tenantId: string;
  readonly kind: 'user' | 'service' | 'agent';
  readonly name: string;
  readonly attributes?: Readonly<Record<string, string | number | boolean>> | undefined;
  readonly sponsorId?: string | undefined;
  readonly boundary?: unknown;
  readonly rootAdmin?: boolean;
}

export async function insertIdentity(tx: Sql, n: NewIdentity): Promise<Record<string, unknown>> {
  const [made] = await rows(
    tx,
    `insert into iam.identities (id, tenant_id, kind, name, attributes, sponsor_id, boundary, root_admin)
     values ($1, $2, $3, $4, $5, $6, $7, $8) returning ${IDENTITY}`,
    [
      newId('identity'),
      n.tenantId,
      n.kind,
      n.name,
      JSON.stringify(n.attributes ?? {}),
      n.sponsorId ?? null,
      n.boundary === undefined ? null : JSON.stringify(n.boundary),
      n.rootAdmin === true,
    ],
  );
  return made!;
}

export async function bindOwner(tx: Sql, tenantId: string, identityId: string): Promise<void> {
  await rows(
    tx,
    `insert into iam.bindings (id, tenant_id, role_id, identity_id)
     select $1, tenant_id, id, $3 from iam.roles where tenant_id = $2 and owner on conflict do nothing`,
    [newId('binding'), tenantId, identityId],
  );
}

function checkAttributes(call: Call, given: Readonly<Record<string, unknown>> | undefined): void {
  for (const attribute of Object.keys(given ?? {})) {
    if (call.catalog.principalAttributes.has(attribute)) continue;
    const known = [...call.catalog.principalAttributes].join(', ');
    throw new IamError('INVALID_INPUT', `attributes.${attribute}: identities carry only ${known}`);
  }
}

export const identityMethods: Methods = {
  'identities/create': method(
    z.strictObject({
      tenantId: id,
      kind: z.enum(['user', 'service', 'agent']),
      name,
      attributes: attributes.optional(),
      sponsorId: id.optional(),
      boundary: document.optional(),
    }),
    async (call, input) => {
      checkAttributes(call, input.attributes);
      if ((input.kind === 'agent') !== (input.sponsorId !== undefined)) {
        throw new IamError('INVALID_INPUT', 'sponsorId: an agent has a sponsor, and nobody else does');
      }
      const ceilings = issuerCeilings(call);
      const boundary = input.boundary === undefined ? undefined : savedDocument(call, input.boundary);
      const target = { tenantId: input.tenantId, action: 'iam:identities:create', resource: 'identities' };
      return call.change(target, async (tx) => {
        if (input.sponsorId !== undefined) await activeIdentity(tx, input.tenantId, input.sponsorId, ['user']);
        const identity = await insertIdentity(tx, { ...input, boundary });
        const identityId = String(identity['id']);
        if (input.kind !== 'user') return [{ identity }, { resourceId: identityId }];
        // There is no sign-in here: a person's first session comes with the person.
        const made = await insertCredential(tx, {
          kind: 'ses',
          tenantId: input.tenantId,
          identityId,
          name: 'first',
          seconds: SESSION_SECONDS,
          boundaries: ceilings,
        });
        return [{ identity, session: { ...made.row, token: made.token } }, { resourceId: identityId }];
      });
    },
  ),

  'identities/list': method(
    z.strictObject({ tenantId: id, kind: z.enum(['user', 'service', 'agent']).optional(), ...page }),
    async (call, input) => {
      await call.allow({ tenantId: input.tenantId, action: 'iam:identities:read', resource: 'identities' });
      const identities = await call.read(
        `select ${IDENTITY} from iam.identities where tenant_id = $1 and id > $2 and ($4::text is null or kind = $4)
         order by id limit $3`,
        [input.tenantId, input.after, input.limit, input.kind ?? null],
      );
      return { identities };
    },
  ),

  'identities/update': method(
    z.strictObject({
      tenantId: id,
      identityId: id,
      status: z.enum(['active', 'suspended', 'deleted']).optional(),
      attributes: attributes.optional(),
      boundary: document.nullable().optional(),
    }),
    async (call, input) => {
      checkAttributes(call, input.attributes);
      const boundary = input.boundary == null ? null : JSON.stringify(savedDocument(call, input.boundary));
      const target = {
        tenantId: input.tenantId,
        action: 'iam:identities:update',
        resource: `identities/${input.identityId}`,
      };
      return call.change(target, async (tx) => {
        const updated = await rows(
          tx,
          `update iam.identities set status = coalesce($3, status), attributes = coalesce($4::jsonb, attributes),
             boundary = case when $5 then $6::jsonb else boundary end
           where id = $1 and tenant_id = $2 returning ${IDENTITY}`,
          [
            input.identityId,
            input.tenantId,
            input.status ?? null,
            input.attributes === undefined ? null : JSON.stringify(input.attributes),
            input.boundary !== undefined,
            boundary,
          ],
        );
        return [{ identity: only(updated, 'identity') }, { resourceId: input.identityId }];
      });
    },
  ),
};
