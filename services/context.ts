/**
 * What every service verb gets beside its input. Built by the host (API Worker, CLI, test) once per request.
 */
import type { AuthzResource, Caller, Decision, IamPort } from '#core/iam/port.ts';
import type { Database } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Input, Operation, Output } from '#core/kernel/operations.ts';
import type { CandidateNode, DeviceWant, Proposal } from '#core/placement/place.ts';
import type { AddressPolicy } from '#core/webhooks/address.ts';
import type { IdempotencyScope } from '#db/idempotency.ts';
import type { AdmissionContext, MutationContext } from '#db/mutate.ts';

/** A wake-up that the commit left behind; the host pokes the shard after the commit. A lost poke only costs time. */
export interface Wake {
  readonly kind: string;
  readonly key: string;
}

/** What a host of services wires together once. */
export interface Services {
  readonly db: Database;
  readonly iam: IamPort;
  /** Called after a commit, never awaited by a verb. */
  readonly poke: (wakes: readonly Wake[]) => void;
  /** Where webhooks may point: public https alone, unless said. */
  readonly webhookAddresses?: AddressPolicy;
  /** Where machines join, for the command that joinTokens.create shows. `caPin` is `sha256/…` of the deployment's CA. */
  readonly joinEndpoint?: { readonly gateway: string; readonly caPin: string };
  /** 32 bytes that seal the cursors of lists; the same in every isolate of a deployment. */
  readonly cursorKey: Uint8Array;
  /**
   * Proposes where a request lands, instead of the index walk and place(). Whatever it says, the constraint decides;
   * the simulator proves that with one that answers at random.
   */
  readonly placer?: (wants: readonly DeviceWant[], nodes: readonly CandidateNode[]) => readonly Proposal[];
}

/** One request. */
export interface RequestContext extends Services {
  readonly caller: Caller;
  readonly requestId: string;
  readonly traceparent?: string;
  readonly sourceIp?: string;
  readonly idempotencyKey?: string;
  /** The version in If-Match, unquoted. */
  readonly ifMatch?: string;
  /** Asks IAM whether the caller may do this; throws PERMISSION_DENIED, or NOT_FOUND for another tenant's row. */
  require(action: string, resource: AuthzResource): Promise<Decision>;
}

export type Handler<O extends Operation = Operation> = (ctx: RequestContext, input: Input<O>) => Promise<Output<O>>;

/** `{ 'sites.create': (ctx, input) => ... }` for a table of operations keyed by name. */
export type Handlers<T extends Readonly<Record<string, Operation>>> = { readonly [K in keyof T]: Handler<T[K]> };

/** What is stored of a request with the changes it was admitted to make. */
export function admissionOf(ctx: RequestContext): AdmissionContext {
  const { caller } = ctx;
  return {
    identityId: caller.identityId,
    sessionKind: caller.sessionKind,
    sessionId: caller.sessionId,
    requestId: ctx.requestId,
    ...(caller.agentId === undefined ? {} : { agentId: caller.agentId }),
    ...(caller.delegationId === undefined ? {} : { delegationId: caller.delegationId }),
    ...(ctx.traceparent === undefined ? {} : { traceparent: ctx.traceparent }),
  };
}

/** The frame that a verb hands to mutate(): its commit is refused if the policies moved since the decision. */
export function mutationOf(ctx: RequestContext, decision: Decision): MutationContext {
  return {
    db: ctx.db,
    actor: 'api',
    admission: admissionOf(ctx),
    poke: ctx.poke,
    ...(decision.policyEpoch === undefined ? {} : { policyEpoch: decision.policyEpoch }),
  };
}

/** Where the answer of this call is stored. Throws IDEMPOTENCY_KEY_REQUIRED. */
export function scopeOf(ctx: RequestContext, operation: string): IdempotencyScope {
  if (ctx.idempotencyKey === undefined) {
    throw problem('IDEMPOTENCY_KEY_REQUIRED', `${operation} needs an Idempotency-Key`);
  }
  return { tenantId: ctx.caller.tenantId, identityId: ctx.caller.identityId, operation, key: ctx.idempotencyKey };
}

export interface RequestOptions {
  readonly caller: Caller;
  readonly requestId: string;
  readonly traceparent?: string;
  readonly sourceIp?: string;
  readonly idempotencyKey?: string;
  readonly ifMatch?: string;
}

/**
 * One request over the services of a host. `require` hides other tenants' rows before IAM is asked: what one may not
 * see does not exist. The platform's own tenant sees all, as far as its policies go.
 */
export function requestContext(services: Services, o: RequestOptions): RequestContext {
  const meta = { requestId: o.requestId, ...(o.sourceIp === undefined ? {} : { sourceIp: o.sourceIp }) };
  return {
    ...services,
    ...o,
    require(action, resource) {
      if (resource.tenantId !== o.caller.tenantId && !o.caller.rootTenant) {
        throw problem(
          'NOT_FOUND',
          `there is no ${resource.type.replace('compute-', '').replaceAll('-', ' ')} ${resource.id}`,
        );
      }
      return services.iam.require(o.caller, action, resource, meta);
    },
  };
}
