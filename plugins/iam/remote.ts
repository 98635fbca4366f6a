/**
 * IamPort over a remote identity service. The caller's own credential is forwarded; nothing is kept between requests.
 * The service resolves resources itself (it asks us, or carries our catalog), so a draft must be committed before it is
 * asked about. It never tells why it denied; whether a denial waits for a person is looked up in the delegation.
 */
import { z } from 'zod';
import { globMatches } from '#core/iam/glob.ts';
import type { AuthzResource, Caller, Decision, IamPort, RequestMeta, UsageEvent } from '#core/iam/port.ts';
import { problem } from '#core/kernel/errors.ts';
import { type Clock, fromMillis, toMillis } from '#core/kernel/time.ts';
import { type RemoteEndpoint, RemoteRefusal, refusalProblem, remoteCall, unavailable } from './remote-call.ts';
import { requireVia } from './require.ts';

const DEADLINE_MS = 3_000;
const CHECKS_MAX = 50;
const EVENTS_MAX = 100;
const BEARER_MAX = 4096;

export interface RemoteIamOptions {
  /** `https://iam.example.com/api/iam`. */
  readonly baseUrl: string;
  readonly clock: Clock;
  readonly rootTenantId: string;
  /** A key of our service account in the root tenant; only usage is recorded with it. */
  readonly serviceToken?: string;
  readonly deadlineMs?: number;
  readonly clientIpHeader?: string;
  readonly fetch?: typeof fetch;
}

/** Holds the bearer where no serializer finds it. */
class Credential {
  readonly #bearer: string;
  constructor(bearer: string) {
    this.#bearer = bearer;
  }
  reveal(): string {
    return this.#bearer;
  }
}

const identity = z.object({
  identityId: z.string().min(1),
  identityKind: z.enum(['user', 'service', 'agent']),
  tenantId: z.string().min(1),
  sessionId: z.string().min(1),
  sessionKind: z.enum(['user', 'api-key', 'role', 'session-token', 'delegated']),
  mfa: z.boolean(),
  expiresAt: z.number().optional(),
  agentId: z.string().optional(),
  delegationId: z.string().optional(),
});
const answer = z.object({ allowed: z.boolean(), reason: z.string() });
const delegation = z.object({ confirm: z.array(z.string()).default([]) });
const delegationAnswer = z.union([z.object({ delegation }).transform((d) => d.delegation), delegation]);

function bearerOf(caller: Caller): string {
  if (caller.credential instanceof Credential) return caller.credential.reveal();
  throw problem('UNAUTHENTICATED', 'the caller was not authenticated by this identity service');
}

const named = ({ type, id }: AuthzResource) => ({ type, id });

async function translated<T>(action: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (e) {
    throw refusalProblem(e, action);
  }
}

export function remoteIam(options: RemoteIamOptions): IamPort {
  const at: RemoteEndpoint = {
    baseUrl: options.baseUrl.replace(/\/+$/, ''),
    clock: options.clock,
    deadlineMs: options.deadlineMs ?? DEADLINE_MS,
    fetch: options.fetch ?? ((...args) => fetch(...args)),
    ...(options.clientIpHeader === undefined ? {} : { clientIpHeader: options.clientIpHeader }),
  };

  async function authenticate(bearer: string | undefined, meta: RequestMeta): Promise<Caller> {
    if (bearer === undefined || bearer === '' || bearer.length > BEARER_MAX || /[^\x21-\x7e]/.test(bearer)) {
      throw problem('UNAUTHENTICATED', 'the credential is missing or malformed');
    }
    const who = await remoteCall(at, 'sts/getCallerIdentity', bearer, {}, identity, meta);
    const { expiresAt, ...rest } = who;
    return {
      ...rest,
      rootTenant: who.tenantId === options.rootTenantId,
      ...(expiresAt === undefined ? {} : { expiresAt: fromMillis(expiresAt) }),
      credential: new Credential(bearer),
    };
  }

  /** Which of the person's actions are held back from this caller; asked at most once a call. */
  function heldBack(caller: Caller, tenantId: string, meta: RequestMeta) {
    let asked: Promise<readonly string[]> | undefined;
    return async (action: string): Promise<boolean> => {
      if (caller.sessionKind !== 'delegated' || caller.delegationId === undefined) return false;
      const body = { tenantId, delegationId: caller.delegationId };
      asked ??= remoteCall(at, 'delegations/get', bearerOf(caller), body, delegationAnswer, meta).then(
        (d) => d.confirm,
      );
      return (await asked).some((pattern) => globMatches(pattern, action));
    };
  }

  async function shown(found: z.output<typeof answer>, waits: () => Promise<boolean>): Promise<Decision> {
    if (found.allowed) return { allowed: true, reason: found.reason };
    return { allowed: false, reason: (await waits()) ? 'CONFIRMATION_REQUIRED' : 'ACCESS_DENIED' };
  }

  const authorize: IamPort['authorize'] = (caller, action, resource, meta) =>
    translated(action, async () => {
      const body = { tenantId: resource.tenantId, action, resource: named(resource) };
      const found = await remoteCall(at, 'authorize', bearerOf(caller), body, answer, meta);
      const held = heldBack(caller, caller.tenantId, meta);
      return shown(found, () => held(action));
    });

  /** One tenant's checks, at most fifty. */
  async function batch(
    caller: Caller,
    tenantId: string,
    checks: readonly { action: string; resource: AuthzResource }[],
    meta: RequestMeta,
  ) {
    const body = {
      tenantId,
      checks: checks.map((check) => ({ action: check.action, resource: named(check.resource) })),
    };
    const found = await remoteCall(at, 'authorizeMany', bearerOf(caller), body, z.array(answer), meta);
    if (found.length !== checks.length) throw unavailable('answered another number of questions');
    return found;
  }

  const authorizeMany: IamPort['authorizeMany'] = (caller, checks, meta) =>
    translated(checks[0]?.action ?? '', async () => {
      const held = heldBack(caller, caller.tenantId, meta);
      const decisions: Decision[] = [];
      for (const tenantId of new Set(checks.map((check) => check.resource.tenantId))) {
        const indexes = [...checks.keys()].filter((i) => checks[i]!.resource.tenantId === tenantId);
        for (let from = 0; from < indexes.length; from += CHECKS_MAX) {
          const chunk = indexes.slice(from, from + CHECKS_MAX);
          const found = await batch(
            caller,
            tenantId,
            chunk.map((i) => checks[i]!),
            meta,
          );
          for (const [n, i] of chunk.entries()) decisions[i] = await shown(found[n]!, () => held(checks[i]!.action));
        }
      }
      return decisions;
    });

  const confirm: IamPort['requestConfirmation'] = (caller, action, resource, reason) =>
    translated(action, () => {
      const body = { tenantId: resource.tenantId, action, resource: named(resource), reason };
      return remoteCall(at, 'delegations/requestConfirmation', bearerOf(caller), body, z.object({ id: z.string() }));
    });

  return {
    authenticate: (bearer, meta) => translated('authenticate', () => authenticate(bearer, meta)),
    authorize,
    authorizeMany,
    requestConfirmation: confirm,
    require: (caller, action, resource, meta) => requireVia({ authorize, confirm }, caller, action, resource, meta),
    billingCheck: (caller, tenantId, meter) =>
      translated('billing:check', async () => {
        const body = { tenantId, ...(meter === undefined ? {} : { meter }) };
        const shape = z.object({ allowed: z.boolean(), blockedBy: z.string().optional() });
        return remoteCall(at, 'billing/check', bearerOf(caller), body, shape);
      }),
    recordUsage: (events) => translated('billing:record', () => recordUsage(at, options, events)),
    featureEnabled: (caller, tenantId, key) =>
      translated('features:evaluate', async () => {
        const shape = z.object({ flags: z.record(z.string(), z.boolean()) });
        const { flags } = await remoteCall(at, 'features/evaluate', bearerOf(caller), { tenantId, keys: [key] }, shape);
        return flags[key] === true;
      }),
  };
}

async function recordUsage(
  at: RemoteEndpoint,
  options: RemoteIamOptions,
  events: readonly UsageEvent[],
): Promise<void> {
  const token = options.serviceToken;
  if (token === undefined) throw unavailable('needs a service credential to record usage');
  const send = (batch: readonly UsageEvent[]) =>
    remoteCall(
      at,
      'billing/recordMany',
      token,
      {
        tenantId: options.rootTenantId,
        events: batch.map(({ occurredAt, ...e }) => ({ ...e, occurredAt: toMillis(occurredAt) })),
      },
      z.object({ receipts: z.array(z.unknown()) }),
    );

  /** All or nothing on the other side, so one event that cannot be taken is searched for by halves. */
  async function deliver(batch: readonly UsageEvent[]): Promise<void> {
    try {
      await send(batch);
    } catch (e) {
      if (!(e instanceof RemoteRefusal)) throw e;
      if (batch.length > 1 && (e.code === 'BILLING_PERIOD_CLOSED' || e.code === 'NOT_FOUND')) {
        const half = Math.ceil(batch.length / 2);
        await deliver(batch.slice(0, half));
        return deliver(batch.slice(half));
      }
      const [event] = batch;
      // The month is invoiced: it counts now, marked as late.
      if (e.code === 'BILLING_PERIOD_CLOSED' && event!.tags?.['lateFor'] === undefined) {
        const tags = { ...event!.tags, lateFor: event!.occurredAt };
        return deliver([{ ...event!, tags, occurredAt: fromMillis(at.clock.now()) }]);
      }
      // The person is no longer known there; the tenant still owes.
      if (e.code === 'NOT_FOUND' && event!.identityId !== undefined) {
        const { identityId: _, ...anonymous } = event!;
        return deliver([anonymous]);
      }
      throw e;
    }
  }
  for (let from = 0; from < events.length; from += EVENTS_MAX) await deliver(events.slice(from, from + EVENTS_MAX));
}
