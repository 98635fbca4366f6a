/** Who one is, feature flags, and the audit chain. */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import { ROOT } from '#core/iam/root.ts';
import { hasMfa } from '#core/iam/snapshot.ts';
import { actsIn } from '../engine.ts';
import { rows } from '../storage.ts';
import { id, type Methods, method, only } from './method.ts';

const flagKey = z
  .string()
  .max(64)
  .regex(/^[a-z0-9]+(?:[-_.][a-z0-9]+)*$/);

export const insightMethods: Methods = {
  'sts/getCallerIdentity': method(z.strictObject({}), async (call) => {
    const { session, identity, delegation } = call.snapshot;
    const agent = delegation?.agent ?? (identity.kind === 'agent' ? identity : undefined);
    return {
      identityId: identity.id,
      identityTenantId: identity.tenantId,
      identityKind: identity.kind,
      tenantId: session.tenantId,
      sessionId: session.id,
      sessionKind: session.kind,
      format: 'opaque',
      mfa: hasMfa(call.snapshot),
      authenticatedAt: session.issuedAt,
      issuedAt: session.issuedAt,
      expiresAt: Math.min(session.endsAt, delegation?.expiresAt ?? session.endsAt),
      ...(session.name === '' ? {} : { sessionName: session.name }),
      ...(agent === undefined ? {} : { agentId: agent.id }),
      ...(delegation === null ? {} : { delegationId: delegation.id }),
    };
  }),

  'features/evaluate': method(
    z.strictObject({ tenantId: id, keys: z.array(z.string().max(64)).min(1).max(100) }),
    async (call, input) => {
      if (!actsIn(call.session, input.tenantId)) throw new IamError('ACCESS_DENIED', 'the tenant is not yours');
      const [row] = await call.read<{ on: string[] }>('select iam.features_on($1) as on', [input.tenantId]);
      return { flags: Object.fromEntries(input.keys.map((key) => [key, row!.on.includes(key)])) };
    },
  ),

  /** For one tenant and below; on the root tenant also the default and the kill switch. */
  'features/set': method(
    z.strictObject({
      tenantId: id,
      key: flagKey,
      enabled: z.boolean(),
      locked: z.boolean().default(false),
      killed: z.boolean().optional(),
    }),
    (call, input) => {
      const target = { tenantId: input.tenantId, action: 'iam:features:set', resource: `features/${input.key}` };
      const root = input.tenantId === ROOT;
      if (input.killed !== undefined && !root)
        throw new IamError('INVALID_INPUT', 'killed: only for the whole platform');
      return call.change(target, async (tx) => {
        if (root) {
          await rows(
            tx,
            `insert into iam.flags (key, enabled, killed) values ($1, $2 and $3, coalesce($4, false))
             on conflict (key) do update set enabled = case when $3 then $2 else iam.flags.enabled end, killed = coalesce($4, iam.flags.killed)`,
            [input.key, input.enabled, !input.locked, input.killed ?? null],
          );
        } else {
          only(await rows(tx, 'select 1 from iam.flags where key = $1', [input.key]), 'flag; the platform makes them');
        }
        if (!root || input.locked) {
          await rows(
            tx,
            `insert into iam.flag_targets values ($1, $2, $3, $4)
             on conflict (key, tenant_id) do update set enabled = excluded.enabled, locked = excluded.locked`,
            [input.key, input.tenantId, input.enabled, input.locked],
          );
        }
        return [{ key: input.key, enabled: input.enabled }, { resourceId: input.key }];
      });
    },
  ),

  'audit/list': method(
    z.strictObject({
      tenantId: id,
      afterSequence: z.int().min(0).default(0),
      limit: z.int().min(1).max(200).default(100),
    }),
    async (call, input) => {
      await call.allow({ tenantId: input.tenantId, action: 'iam:audit:read', resource: 'audit' });
      const events = await call.read<{ event: unknown }>(
        `select record || jsonb_build_object('hash', hash) as event from iam.audit where tenant_id = $1 and sequence > $2 order by sequence limit $3`,
        [input.tenantId, input.afterSequence, input.limit],
      );
      return { events: events.map((row) => row.event) };
    },
  ),
};
