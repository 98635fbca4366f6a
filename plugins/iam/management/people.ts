/** Tenants, identities, their keys and sessions, groups. A token is shown in the answer that made it and never again. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import { makeToken, type TokenKind } from '#core/iam/token.ts';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import {
  type Call,
  ceiling,
  ceilingInput,
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
const SESSION_SECONDS = 30 * 86_400;
const KEY_SECONDS_MIN = 60;
const KEY_SECONDS_MAX = 365 * 86_400;
const KEY_SECONDS = 90 * 86_400;

const slug = z.string().regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/);
const attributes = z.record(z.string(), z.union([z.string().max(256), z.number(), z.boolean()]));

const TENANT = `id, parent_id as "parentId", type, name, slug, status, boundary, version, iam.ms(created_at) as "createdAt"`;
const IDENTITY = `id, tenant_id as "tenantId", kind, name, status, attributes, sponsor_id as "sponsorId", boundary, iam.ms(created_at) as "createdAt"`;
const KEY = `id, tenant_id as "tenantId", identity_id as "identityId", name, iam.ms(created_at) as "createdAt",
  iam.ms(expires_at) as "expiresAt", iam.ms(revoked_at) as "revokedAt"`;

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

export interface NewCredential {
  readonly kind: TokenKind;
  readonly tenantId: string;
  readonly identityId: string;
  readonly name: string;
  readonly seconds: number;
  readonly mfa?: boolean;
  readonly boundaries?: readonly unknown[];
  readonly delegationId?: string;
  readonly sourceId?: string;
}

const SESSION_KIND = { ses: 'user', key: 'api-key', dlg: 'delegated' } as const;

/** Gives the token; only its hash is stored. */
export async function insertCredential(
  tx: Sql,
  n: NewCredential,
): Promise<{ token: string; row: Record<string, unknown> }> {
  const { token, hash } = await makeToken(n.kind);
  const [row] = await rows(
    tx,
    `insert into iam.credentials (id, token_hash, kind, tenant_id, identity_id, name, boundaries, mfa_at, delegation_id, source_id, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, case when $8 then compute_now() end, $9, $10, compute_now() + make_interval(secs => $11))
     returning ${KEY}`,
    [
      newId(n.kind === 'key' ? 'apiKey' : 'session'),
      hash,
      SESSION_KIND[n.kind],
      n.tenantId,
      n.identityId,
      n.name,
      JSON.stringify(n.boundaries ?? []),
      n.mfa === true,
      n.delegationId ?? null,
      n.sourceId ?? null,
      n.seconds,
    ],
  );
  return { token, row: row! };
}

/** Nobody hands out more than their own credential may do: its ceilings go along. */
function issuerCeilings(call: Call): unknown[] {
  const { session, identity, delegation } = call.snapshot;
  if (delegation !== null) throw new IamError('ACCESS_DENIED', 'a delegated session makes no credentials');
  return [...session.boundaries, ...(identity.boundary === null ? [] : [identity.boundary])];
}

function checkAttributes(call: Call, given: Readonly<Record<string, unknown>> | undefined): void {
  for (const attribute of Object.keys(given ?? {})) {
    if (call.catalog.principalAttributes.has(attribute)) continue;
    const known = [...call.catalog.principalAttributes].join(', ');
    throw new IamError('INVALID_INPUT', `attributes.${attribute}: identities carry only ${known}`);
  }
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

export const peopleMethods: Methods = {
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

  'apiKeys/create': method(
    z.strictObject({
      tenantId: id,
      identityId: id,
      name,
      expiresInSeconds: z.int().min(KEY_SECONDS_MIN).max(KEY_SECONDS_MAX).default(KEY_SECONDS),
      ...ceilingInput,
    }),
    async (call, input) => {
      const own = ceiling(call, input);
      const boundaries = [...issuerCeilings(call), ...(own === undefined ? [] : [own])];
      const target = {
        tenantId: input.tenantId,
        action: 'iam:apiKeys:create',
        resource: `apiKeys/${input.identityId}`,
      };
      return call.change(target, async (tx) => {
        await activeIdentity(tx, input.tenantId, input.identityId, ['service', 'agent']);
        const made = await insertCredential(tx, { ...input, kind: 'key', seconds: input.expiresInSeconds, boundaries });
        return [{ apiKey: made.row, token: made.token }, { resourceId: String(made.row['id']) }];
      });
    },
  ),

  'apiKeys/list': method(z.strictObject({ tenantId: id, identityId: id.optional(), ...page }), async (call, input) => {
    await call.allow({ tenantId: input.tenantId, action: 'iam:apiKeys:read', resource: 'apiKeys' });
    const apiKeys = await call.read(
      `select ${KEY} from iam.credentials where kind = 'api-key' and tenant_id = $1 and id > $2
         and ($4::text is null or identity_id = $4) order by id limit $3`,
      [input.tenantId, input.after, input.limit, input.identityId ?? null],
    );
    return { apiKeys };
  }),

  'apiKeys/revoke': method(z.strictObject({ tenantId: id, apiKeyId: id }), (call, input) => {
    const target = { tenantId: input.tenantId, action: 'iam:apiKeys:revoke', resource: `apiKeys/${input.apiKeyId}` };
    return call.change(target, async (tx) => [
      { apiKey: await revoke(tx, input.tenantId, input.apiKeyId, 'api-key') },
      { resourceId: input.apiKeyId },
    ]);
  }),

  'sessions/revoke': method(z.strictObject({ tenantId: id, sessionId: id }), (call, input) => {
    const target = { tenantId: input.tenantId, action: 'iam:sessions:revoke', resource: `sessions/${input.sessionId}` };
    const own = call.snapshot.session.id === input.sessionId && call.snapshot.session.tenantId === input.tenantId;
    const end = async (tx: Sql): Promise<[unknown, { resourceId: string }]> => [
      { session: await revoke(tx, input.tenantId, input.sessionId) },
      { resourceId: input.sessionId },
    ];
    // One may always end the session that one is in.
    return own ? call.ownChange(target, end) : call.change(target, end);
  }),
};

async function revoke(tx: Sql, tenantId: string, key: string, kind?: string): Promise<Record<string, unknown>> {
  const ended = await rows(
    tx,
    `update iam.credentials set revoked_at = coalesce(revoked_at, compute_now())
     where id = $1 and tenant_id = $2 and ($3::text is null or kind = $3) returning ${KEY}`,
    [key, tenantId, kind ?? null],
  );
  return only(ended, kind === undefined ? 'session' : 'API key');
}

export async function activeIdentity(tx: Sql, tenantId: string, key: string, kinds: readonly string[]): Promise<void> {
  const [found] = await rows<{ kind: string; status: string }>(
    tx,
    'select kind, status from iam.identities where id = $1 and tenant_id = $2 for share',
    [key, tenantId],
  );
  if (found === undefined) throw new IamError('NOT_FOUND', 'there is no such identity in the tenant');
  if (found.status !== 'active' || !kinds.includes(found.kind)) {
    throw new IamError('INVALID_IDENTITY', `the identity must be active and a ${kinds.join(' or ')}`);
  }
}
