/**
 * IamPort: every question this product asks its identity service. Two adapters implement it: `embedded` (our evaluator
 * over the tables in schema `iam`) and `remote` (Better IAM over HTTP). Services know only this file.
 */
import type { Instant } from '../kernel/time.ts';

export type IdentityKind = 'user' | 'service' | 'agent';
export type SessionKind = 'user' | 'api-key' | 'role' | 'session-token' | 'delegated';

/** Who calls, as the identity service vouched for it. Never built from anything the caller said. */
export interface Caller {
  readonly identityId: string;
  readonly identityKind: IdentityKind;
  /** The tenant that this credential acts in. */
  readonly tenantId: string;
  readonly sessionId: string;
  readonly sessionKind: SessionKind;
  readonly mfa: boolean;
  readonly agentId?: string;
  readonly delegationId?: string;
  /** True for a session of the platform's own tenant. */
  readonly rootTenant: boolean;
  readonly expiresAt?: Instant;
  /** The adapter's own handle on the credential; opaque to everyone else and never logged. */
  readonly credential: unknown;
}

/** What is asked about. Remote IAM ignores `attributes` and resolves the row itself. */
export interface AuthzResource {
  /** `compute-reservation`. */
  readonly type: `compute-${string}`;
  /** The row's id, or `*` for the collection. */
  readonly id: string;
  readonly tenantId: string;
  readonly ownerId?: string;
  readonly parentType?: string;
  readonly parentId?: string;
  /** Scalars or lists of scalars, named as policies read them behind `resource.`. */
  readonly attributes?: Readonly<Record<string, string | number | boolean | readonly string[]>>;
}

export interface Decision {
  readonly allowed: boolean;
  /** `allowed`, `ROOT_OVERRIDE`, `ACCESS_DENIED` or `CONFIRMATION_REQUIRED`: all that leaves the identity service. */
  readonly reason: string;
  /**
   * Version of the policies that the decision was made under. A write passes it to `mutate()`, which refuses to commit
   * under newer policies and has the decision made again. Undefined where the service cannot say (remote).
   */
  readonly policyEpoch?: number;
  readonly confirmationId?: string;
}

export interface RequestMeta {
  readonly requestId: string;
  readonly sourceIp?: string;
}

export interface UsageEvent {
  readonly tenantId: string;
  readonly meter: string;
  readonly quantity: number;
  readonly occurredAt: Instant;
  readonly idempotencyKey: string;
  readonly identityId?: string;
  readonly tags?: Readonly<Record<string, string>>;
}

export interface IamPort {
  /** Throws UNAUTHENTICATED, TENANT-inactive as PERMISSION_DENIED, IAM_UNAVAILABLE. */
  authenticate(bearer: string | undefined, meta: RequestMeta): Promise<Caller>;
  authorize(caller: Caller, action: string, resource: AuthzResource, meta: RequestMeta): Promise<Decision>;
  /** Answers in the order of the checks. */
  authorizeMany(
    caller: Caller,
    checks: readonly { action: string; resource: AuthzResource }[],
    meta: RequestMeta,
  ): Promise<Decision[]>;
  /** As authorize, but throws PERMISSION_DENIED or CONFIRMATION_REQUIRED. */
  require(caller: Caller, action: string, resource: AuthzResource, meta: RequestMeta): Promise<Decision>;
  requestConfirmation(caller: Caller, action: string, resource: AuthzResource, reason: string): Promise<{ id: string }>;
  billingCheck(caller: Caller, tenantId: string, meter?: string): Promise<{ allowed: boolean; blockedBy?: string }>;
  recordUsage(events: readonly UsageEvent[]): Promise<void>;
  featureEnabled(caller: Caller, tenantId: string, key: string): Promise<boolean>;
}
