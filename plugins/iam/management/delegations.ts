/**
 * Delegations: one agent acts for one person, within what the person granted and never past what the person may do.
 * Who may do what here follows from who one is in the delegation; policies are asked only by third parties.
 */
import { z } from 'zod';
import { IamError } from '#core/iam/iam-error.ts';
import type { PolicyDocument } from '#core/iam/policy.ts';
import { newId } from '#core/kernel/ids.ts';
import { rows } from '../storage.ts';
import { activeIdentity } from './active-identity.ts';
import { insertCredential } from './credentials.ts';
import { type Call, ceiling, ceilingInput, id, type Methods, method, name, only, page } from './method.ts';

const EXPIRES_SECONDS = 30 * 86_400;
const SESSIONS_MAX = 20;
const REQUESTS_MAX = 10;
const REQUESTS_WINDOW_MINUTES = 15;

const confirmPattern = z.string().regex(/^[A-Za-z0-9*?][A-Za-z0-9:_*?.-]{0,127}$/);

const COLUMNS = `id, tenant_id as "tenantId", agent_id as "agentId", person_id as "personId",
  case when status in ('pending', 'active') and expires_at <= compute_now() then 'expired' else status end as status,
  reason, policy, confirm, max_session_seconds as "maxSessionSeconds", iam.ms(expires_at) as "expiresAt",
  iam.ms(created_at) as "createdAt", iam.ms(decided_at) as "decidedAt"`;

interface DelegationRow extends Record<string, unknown> {
  readonly id: string;
  readonly agentId: string;
  readonly personId: string;
  readonly status: string;
  readonly policy: PolicyDocument;
  readonly maxSessionSeconds: number;
}

async function find(call: Call, tenantId: string, delegationId: string): Promise<DelegationRow> {
  const found = await call.read<DelegationRow>(
    `select ${COLUMNS} from iam.delegations where id = $1 and tenant_id = $2`,
    [delegationId, tenantId],
  );
  return only(found, 'delegation');
}

function requireOwnTenant(call: Call, tenantId: string): void {
  if (call.snapshot.session.tenantId !== tenantId)
    throw new IamError('ACCESS_DENIED', 'the tenant is not the one you act in');
}

/** The agent itself, with its own key. */
function requireAgent(call: Call, tenantId: string): string {
  const { identity, session } = call.snapshot;
  requireOwnTenant(call, tenantId);
  if (identity.kind === 'agent' && session.kind === 'api-key') return identity.id;
  throw new IamError('DELEGATION_NOT_ALLOWED', 'only an agent with its own API key does this');
}

const request = z.strictObject({
  tenantId: id,
  personId: id,
  reason: z.string().min(1).max(1024),
  confirm: z.array(confirmPattern).max(50).default([]),
  expiresInSeconds: z
    .int()
    .min(300)
    .max(365 * 86_400)
    .default(EXPIRES_SECONDS),
  maxSessionSeconds: z.int().min(60).max(3600).default(3600),
  ...ceilingInput,
});

/** What an approval or an end does; `from` are the states that it leads out of. */
async function move(
  call: Call,
  found: DelegationRow,
  to: string,
  from: readonly string[],
  action: string,
  policies: boolean,
) {
  const target = { tenantId: call.snapshot.session.tenantId, action, resource: `delegations/${found.id}` };
  const run = policies ? call.change.bind(call) : call.ownChange.bind(call);
  return run(target, async (tx) => {
    const [moved] = await rows<DelegationRow>(
      tx,
      `update iam.delegations set status = $2, decided_at = compute_now()
       where id = $1 and status = any($3) and (expires_at > compute_now() or $2 = 'revoked') returning ${COLUMNS}`,
      [found.id, to, from],
    );
    if (moved === undefined) throw new IamError('INVALID_TRANSITION', `the delegation is ${found.status}`);
    return [{ delegation: moved }, { resourceId: found.id }] as const as [unknown, { resourceId: string }];
  });
}

export const delegationMethods: Methods = {
  'delegations/request': method(request, async (call, input) => {
    const agentId = requireAgent(call, input.tenantId);
    const policy = ceiling(call, input);
    if (policy === undefined) throw new IamError('INVALID_INPUT', 'policy: name what is asked for, or scopes');
    const target = { tenantId: input.tenantId, action: 'delegation:request' };
    return call.ownChange(target, async (tx) => {
      await activeIdentity(tx, input.tenantId, input.personId, ['user']);
      const [recent] = await rows<{ n: number }>(
        tx,
        `select count(*)::int as n from iam.delegations where agent_id = $1 and created_at > compute_now() - make_interval(mins => $2)`,
        [agentId, REQUESTS_WINDOW_MINUTES],
      );
      if (recent!.n >= REQUESTS_MAX) {
        throw new IamError('RATE_LIMITED', 'too many delegations were asked for', REQUESTS_WINDOW_MINUTES * 60_000);
      }
      const [delegation] = await rows<DelegationRow>(
        tx,
        `insert into iam.delegations (id, tenant_id, agent_id, person_id, reason, policy, confirm, max_session_seconds, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, compute_now() + make_interval(secs => $9)) returning ${COLUMNS}`,
        [
          newId('delegation'),
          input.tenantId,
          agentId,
          input.personId,
          input.reason,
          JSON.stringify(policy),
          input.confirm,
          input.maxSessionSeconds,
          input.expiresInSeconds,
        ],
      );
      return [{ delegation }, { resourceId: delegation!.id, metadata: { personId: input.personId } }];
    });
  }),

  'delegations/approve': method(
    z.strictObject({ tenantId: id, delegationId: id, approve: z.boolean().default(true) }),
    async (call, input) => {
      requireOwnTenant(call, input.tenantId);
      const found = await find(call, input.tenantId, input.delegationId);
      const { identity, session } = call.snapshot;
      if (identity.id !== found.personId) throw new IamError('NOT_FOUND', 'there is no such delegation');
      if (session.kind !== 'user')
        throw new IamError('ACCESS_DENIED', 'only a person decides, in a session of their own');
      const action = input.approve ? 'delegation:approve' : 'delegation:deny';
      return move(call, found, input.approve ? 'active' : 'denied', ['pending'], action, false);
    },
  ),

  'delegations/revoke': method(z.strictObject({ tenantId: id, delegationId: id }), async (call, input) => {
    const { identity, delegation } = call.snapshot;
    if (delegation !== null) throw new IamError('ACCESS_DENIED', 'a delegated session does not manage delegations');
    const found = await find(call, input.tenantId, input.delegationId);
    const own = identity.id === found.personId || identity.id === found.agentId;
    const action = own ? 'delegation:revoke' : 'iam:delegations:revoke';
    return move(call, found, 'revoked', ['pending', 'active'], action, !own);
  }),

  'delegations/get': method(z.strictObject({ tenantId: id, delegationId: id }), async (call, input) => {
    const found = await find(call, input.tenantId, input.delegationId);
    const { identity, delegation } = call.snapshot;
    const party =
      delegation === null
        ? identity.id === found.personId || identity.id === found.agentId
        : delegation.id === found.id;
    if (!party) {
      await call.allow({
        tenantId: input.tenantId,
        action: 'iam:delegations:read',
        resource: `delegations/${found.id}`,
      });
    }
    return { delegation: found };
  }),

  /** Those that one is a party to. */
  'delegations/list': method(z.strictObject({ tenantId: id, ...page }), async (call, input) => {
    requireOwnTenant(call, input.tenantId);
    const delegations = await call.read(
      `select ${COLUMNS} from iam.delegations where tenant_id = $1 and $2 in (person_id, agent_id) and id > $3 order by id limit $4`,
      [input.tenantId, call.snapshot.identity.id, input.after, input.limit],
    );
    return { delegations };
  }),

  'delegations/assume': method(
    z.strictObject({
      tenantId: id,
      delegationId: id,
      durationSeconds: z.int().min(60).max(3600).default(900),
      sessionName: name.optional(),
      policy: ceilingInput.policy,
    }),
    async (call, input) => {
      const agentId = requireAgent(call, input.tenantId);
      const found = await find(call, input.tenantId, input.delegationId);
      if (found.agentId !== agentId) throw new IamError('NOT_FOUND', 'there is no such delegation');
      if (found.status !== 'active') throw new IamError('DELEGATION_INACTIVE', `the delegation is ${found.status}`);
      const own = ceiling(call, { policy: input.policy });
      return call.ownChange({ tenantId: input.tenantId, action: 'delegation:assume' }, async (tx) => {
        // The delegation's row is the lock under which its live sessions are counted.
        await rows(tx, 'select 1 from iam.delegations where id = $1 for no key update', [found.id]);
        const [open] = await rows<{ n: number }>(
          tx,
          'select count(*)::int as n from iam.credentials where delegation_id = $1 and revoked_at is null and expires_at > compute_now()',
          [found.id],
        );
        if (open!.n >= SESSIONS_MAX)
          throw new IamError('LIMIT_EXCEEDED', `at most ${SESSIONS_MAX} sessions of a delegation at once`);
        const made = await insertCredential(tx, {
          kind: 'dlg',
          tenantId: input.tenantId,
          identityId: found.personId,
          name: input.sessionName ?? '',
          seconds: Math.min(input.durationSeconds, found.maxSessionSeconds),
          boundaries: [...call.snapshot.session.boundaries, ...(own === undefined ? [] : [own])],
          delegationId: found.id,
          sourceId: call.snapshot.session.id,
        });
        return [
          { token: made.token, session: made.row },
          { resourceId: found.id, metadata: { sessionId: String(made.row['id']) } },
        ];
      });
    },
  ),
};
