/**
 * Confirmations: an agent that acts for a person asks that person about one action on one resource. An approval stands
 * for that pair until it ends; the identical request that still waits is returned instead of a second one.
 */
import { z } from 'zod';
import { approvalKey } from '#core/iam/decide.ts';
import { globMatches } from '#core/iam/glob.ts';
import { IamError } from '#core/iam/iam-error.ts';
import { newId } from '#core/kernel/ids.ts';
import type { Engine, Session } from '../engine.ts';
import { rows } from '../storage.ts';
import { type Call, id, type Methods, method, only, page } from './method.ts';

const WAIT_MINUTES = 30;
const REQUESTS_MAX = 10;
const REQUESTS_WINDOW_MINUTES = 15;

const resource = z.strictObject({ type: z.string().min(1).max(64), id: z.string().min(1).max(1024) });
const asked = z.strictObject({
  tenantId: id,
  action: z.string().min(1).max(256),
  resource,
  reason: z.string().min(1).max(1024),
  validSeconds: z.int().min(30).max(3600).default(300),
});

const COLUMNS = `id, tenant_id as "tenantId", delegation_id as "delegationId",
  status, expires_at <= compute_now() as expired, action, resource, reason, valid_seconds as "validSeconds",
  iam.ms(expires_at) as "expiresAt", iam.ms(requested_at) as "requestedAt", iam.ms(decided_at) as "decidedAt"`;

interface ConfirmationRow extends Record<string, unknown> {
  readonly id: string;
  readonly delegationId: string;
  readonly resource: string;
  readonly status: string;
}

const shown = (row: ConfirmationRow) => {
  const slash = row.resource.indexOf('/');
  return { ...row, resource: { type: row.resource.slice(0, slash), id: row.resource.slice(slash + 1) } };
};

export async function requestConfirmation(engine: Engine, session: Session, input: z.input<typeof asked>) {
  const { delegation, session: own } = session.snapshot;
  if (delegation === null || own.tenantId !== input.tenantId) {
    throw new IamError('DELEGATION_NOT_ALLOWED', 'only a delegated session asks for a confirmation, in its own tenant');
  }
  if (!delegation.confirm.some((pattern) => globMatches(pattern, input.action))) {
    throw new IamError('INVALID_INPUT', `${input.action} is not an action that the person held back`);
  }
  const name = `${input.resource.type}/${input.resource.id}`;
  const pair = [delegation.id, input.action, name] as const;
  await rows(
    engine.db,
    "update iam.confirmations set status = 'rejected' where delegation_id = $1 and action = $2 and resource = $3 and status = 'pending' and expires_at <= compute_now()",
    pair,
  );
  const waiting = `select ${COLUMNS} from iam.confirmations where delegation_id = $1 and action = $2 and resource = $3 and status = 'pending'`;
  const [same] = await rows<ConfirmationRow>(engine.db, waiting, pair);
  if (same !== undefined) return shown(same);
  const [made] = await rows<ConfirmationRow>(
    engine.db,
    `insert into iam.confirmations (id, tenant_id, delegation_id, action, resource, reason, valid_seconds, expires_at)
     select $4, $5, $1, $2, $3, $6, $7, compute_now() + make_interval(mins => ${WAIT_MINUTES})
     where (select count(*) from iam.confirmations where delegation_id = $1
       and requested_at > compute_now() - make_interval(mins => ${REQUESTS_WINDOW_MINUTES})) < ${REQUESTS_MAX}
     on conflict (delegation_id, action, resource) where status = 'pending' do nothing
     returning ${COLUMNS}`,
    [...pair, newId('confirmation'), input.tenantId, input.reason, input.validSeconds ?? 300],
  );
  const [found] = made === undefined ? await rows<ConfirmationRow>(engine.db, waiting, pair) : [made];
  if (found === undefined) {
    throw new IamError('RATE_LIMITED', 'too many confirmations were asked for', REQUESTS_WINDOW_MINUTES * 60_000);
  }
  return shown(found);
}

/** The person whose delegation it is, its agent, or the delegated session itself. */
async function visible(call: Call, delegationId: string): Promise<{ person: boolean }> {
  const [d] = await call.read<{ person_id: string; agent_id: string }>(
    'select person_id, agent_id from iam.delegations where id = $1 and tenant_id = $2',
    [delegationId, call.snapshot.session.tenantId],
  );
  const me = call.snapshot.identity.id;
  if (d === undefined || (d.person_id !== me && d.agent_id !== me)) {
    throw new IamError('NOT_FOUND', 'there is no such confirmation');
  }
  const { delegation } = call.snapshot;
  if (delegation !== null && delegation.id !== delegationId)
    throw new IamError('NOT_FOUND', 'there is no such confirmation');
  return { person: d.person_id === me && call.snapshot.session.kind === 'user' };
}

export const confirmationMethods: Methods = {
  'delegations/requestConfirmation': method(asked, (call, input) =>
    requestConfirmation(call.engine, call.session, input),
  ),

  'delegations/decideConfirmation': method(
    z.strictObject({ tenantId: id, confirmationId: id, approve: z.boolean() }),
    async (call, input) => {
      const found = only(
        await call.read<ConfirmationRow>(`select ${COLUMNS} from iam.confirmations where id = $1 and tenant_id = $2`, [
          input.confirmationId,
          input.tenantId,
        ]),
        'confirmation',
      );
      const { person } = await visible(call, found.delegationId);
      if (!person)
        throw new IamError('ACCESS_DENIED', 'only the person who delegated decides, in a session of their own');
      const action = input.approve ? 'delegation:confirm' : 'delegation:reject';
      return call.ownChange({ tenantId: input.tenantId, action }, async (tx) => {
        const [decided] = await rows<ConfirmationRow>(
          tx,
          `update iam.confirmations set status = case when $2 then 'approved' else 'rejected' end, decided_at = compute_now(),
             expires_at = case when $2 then compute_now() + make_interval(secs => valid_seconds) else expires_at end
           where id = $1 and status = 'pending' and expires_at > compute_now() returning ${COLUMNS}`,
          [found.id, input.approve],
        );
        if (decided === undefined)
          throw new IamError('INVALID_TRANSITION', 'it was decided already, or no one waits any more');
        return [
          shown(decided),
          { resourceId: found.id, metadata: { confirmed: approvalKey(String(found['action']), found.resource) } },
        ];
      });
    },
  ),

  'delegations/getConfirmation': method(z.strictObject({ tenantId: id, confirmationId: id }), async (call, input) => {
    const found = only(
      await call.read<ConfirmationRow>(`select ${COLUMNS} from iam.confirmations where id = $1 and tenant_id = $2`, [
        input.confirmationId,
        input.tenantId,
      ]),
      'confirmation',
    );
    await visible(call, found.delegationId);
    return shown(found);
  }),

  'delegations/listConfirmations': method(
    z.strictObject({
      tenantId: id,
      delegationId: id.optional(),
      status: z.enum(['pending', 'approved', 'rejected']).optional(),
      ...page,
    }),
    async (call, input) => {
      const me = call.snapshot.identity.id;
      const only = call.snapshot.delegation?.id ?? input.delegationId ?? null;
      const found = await call.read<ConfirmationRow>(
        `select ${COLUMNS} from iam.confirmations c
         where tenant_id = $1 and tenant_id = $7 and id > $5 and ($3::text is null or delegation_id = $3) and ($4::text is null or status = $4)
           and exists (select 1 from iam.delegations d where d.id = c.delegation_id and $2 in (d.person_id, d.agent_id))
         order by id limit $6`,
        [input.tenantId, me, only, input.status ?? null, input.after, input.limit, call.snapshot.session.tenantId],
      );
      return { confirmations: found.map(shown) };
    },
  ),
};
