/**
 * What every service verb gets beside its input. Built by the host (API Worker, CLI, test) once per request.
 */
import type { AuthzResource, Caller, Decision, IamPort } from '#core/iam/port.ts';
import type { Database } from '#core/kernel/database.ts';
import type { Input, Operation, Output } from '#core/kernel/operations.ts';

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
