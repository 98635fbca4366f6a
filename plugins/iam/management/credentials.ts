/** Credentials: sessions and API keys. A token is shown in the answer that made it and never again. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import { makeToken, TOKEN_KINDS, type TokenKind } from '#core/iam/token.ts';
import type { Sql } from '#core/kernel/database.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import { activeIdentity } from './active-identity.ts';
import { type Call, ceiling, ceilingInput, id, type Methods, method, name, only, page } from './method.ts';

export const SESSION_SECONDS = 30 * 86_400;
const KEY_SECONDS_MIN = 60;
const KEY_SECONDS_MAX = 365 * 86_400;
const KEY_SECONDS = 90 * 86_400;
/** Each issue from an issued key adds one; a snapshot carries them all. */
const CEILINGS_MAX = 16;

const KEY = `id, tenant_id as "tenantId", identity_id as "identityId", name, iam.ms(created_at) as "createdAt",
  iam.ms(expires_at) as "expiresAt", iam.ms(revoked_at) as "revokedAt"`;

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

/** Gives the token; only its hash is stored. */
export async function insertCredential(
  tx: Sql,
  n: NewCredential,
): Promise<{ token: string; row: Record<string, unknown> }> {
  if ((n.boundaries?.length ?? 0) > CEILINGS_MAX) {
    throw new IamError(
      'LIMIT_EXCEEDED',
      `a credential carries at most ${CEILINGS_MAX} ceilings; issue it from an earlier one`,
    );
  }
  const { token, hash } = makeToken(n.kind);
  const [row] = await rows(
    tx,
    `insert into iam.credentials (id, token_hash, kind, tenant_id, identity_id, name, boundaries, mfa_at, delegation_id, source_id, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, case when $8 then compute_now() end, $9, $10, compute_now() + make_interval(secs => $11))
     returning ${KEY}`,
    [
      newId(n.kind === 'key' ? 'apiKey' : 'session'),
      hash,
      TOKEN_KINDS[n.kind],
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
export function issuerCeilings(call: Call): unknown[] {
  const { session, identity, delegation } = call.snapshot;
  if (delegation !== null) throw new IamError('ACCESS_DENIED', 'a delegated session makes no credentials');
  return [...session.boundaries, ...(identity.boundary === null ? [] : [identity.boundary])];
}

export const credentialMethods: Methods = {
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
