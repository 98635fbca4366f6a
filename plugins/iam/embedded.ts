/**
 * IamPort over the tables in schema `iam`. Callers see only what a remote service would tell them: allowed, denied, or
 * held back until a person confirms.
 */
import { IamError } from '#core/iam/iam-error.ts';
import type { Caller, Decision, IamPort, RequestMeta, UsageEvent } from '#core/iam/port.ts';
import { hasMfa, inRoot, type Snapshot, tenantActive } from '#core/iam/snapshot.ts';
import type { Database } from '#core/kernel/database.ts';
import { isProblem, Problem, problem } from '#core/kernel/errors.ts';
import { fromMillis } from '#core/kernel/time.ts';
import { type Answer, actsIn, Engine, type EngineOptions, Session } from './engine.ts';
import { requestConfirmation } from './management/confirmations.ts';
import { recordUsage, requireBelow } from './management/usage.ts';
import { requireVia } from './require.ts';
import { rows } from './storage.ts';

function callerOf(session: Session): Caller {
  const { snapshot } = session;
  const { delegation } = snapshot;
  const agentId = delegation?.agent.id ?? (snapshot.identity.kind === 'agent' ? snapshot.identity.id : undefined);
  return {
    identityId: snapshot.identity.id,
    identityKind: snapshot.identity.kind,
    tenantId: snapshot.session.tenantId,
    sessionId: snapshot.session.id,
    sessionKind: snapshot.session.kind,
    mfa: hasMfa(snapshot),
    ...(agentId === undefined ? {} : { agentId }),
    ...(delegation === null ? {} : { delegationId: delegation.id }),
    rootTenant: inRoot(snapshot),
    expiresAt: fromMillis(expiry(snapshot)),
    credential: session,
  };
}

const expiry = (s: Snapshot): number => Math.min(s.session.endsAt, s.delegation?.expiresAt ?? s.session.endsAt);

function sessionOf(caller: Caller): Session {
  if (caller.credential instanceof Session) return caller.credential;
  throw problem('UNAUTHENTICATED', 'the caller was not authenticated by this identity service');
}

/** What of the engine's own errors the product's callers may see. */
async function translated<T>(action: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (e) {
    if (isProblem(e) || !(e instanceof IamError)) throw e;
    switch (e.code) {
      case 'UNAUTHENTICATED':
        throw problem('UNAUTHENTICATED', e.message);
      case 'NOT_FOUND':
        throw problem('NOT_FOUND', e.message);
      case 'INVALID_INPUT':
        throw problem('INVALID_REQUEST', e.message, { errors: [] });
      case 'CONFLICT':
        throw problem('CONFLICT', e.message);
      case 'RATE_LIMITED':
        throw problem('RATE_LIMITED', e.message, { retryAfterSeconds: Math.ceil((e.retryAfterMs ?? 60_000) / 1000) });
      case 'STORAGE_BUSY':
        throw new Problem('IAM_UNAVAILABLE', e.message, { retryAfterSeconds: 2 }, e);
      default:
        throw problem('PERMISSION_DENIED', e.message, { action });
    }
  }
}

function shown({ decision, epoch }: Answer): Decision {
  const open = decision.allowed || decision.reason === 'CONFIRMATION_REQUIRED';
  return { allowed: decision.allowed, reason: open ? decision.reason : 'ACCESS_DENIED', policyEpoch: epoch };
}

export function embeddedIam(db: Database, options: EngineOptions): IamPort {
  const engine = new Engine(db, options);

  const authorizeMany: IamPort['authorizeMany'] = (caller, checks, meta) =>
    translated(checks[0]?.action ?? '', async () => (await engine.ask(sessionOf(caller), checks, meta)).map(shown));

  const authorize: IamPort['authorize'] = async (caller, action, resource, meta) =>
    (await authorizeMany(caller, [{ action, resource }], meta))[0]!;

  const confirm: IamPort['requestConfirmation'] = (caller, action, resource, reason) =>
    translated(action, () =>
      requestConfirmation(engine, sessionOf(caller), {
        tenantId: resource.tenantId,
        action,
        resource: { type: resource.type, id: resource.id },
        reason,
      }),
    );

  return {
    authenticate: (bearer, _meta: RequestMeta) =>
      translated('authenticate', async () => {
        const session = await engine.open(bearer);
        if (!tenantActive(session.snapshot)) throw new IamError('TENANT_INACTIVE', 'the tenant is not active');
        return callerOf(session);
      }),
    authorize,
    authorizeMany,
    requestConfirmation: confirm,
    require: (caller, action, resource, meta) => requireVia({ authorize, confirm }, caller, action, resource, meta),
    billingCheck: (caller, tenantId) =>
      translated('billing:check', async () => {
        await requireBelow(db, tenantId, caller.tenantId);
        return { allowed: true };
      }),
    recordUsage: (events: readonly UsageEvent[]) => translated('billing:record', () => recordUsage(db, events)),
    featureEnabled: (caller, tenantId, key) =>
      translated('features:evaluate', async () => {
        const session = sessionOf(caller);
        if (!actsIn(session, tenantId)) throw new IamError('ACCESS_DENIED', 'the tenant is not yours');
        if (tenantId === caller.tenantId) return session.snapshot.features.includes(key);
        const [row] = await rows<{ on: string[] }>(db, 'select iam.features_on($1) as on', [tenantId]);
        return row!.on.includes(key);
      }),
  };
}
