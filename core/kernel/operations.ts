/**
 * One table of operations. Each API operation is declared once, here is the shape of its row; routes, OpenAPI, the
 * typed client, CLI commands, reference docs and the no-rights tests are derived from the rows.
 */
import type { z } from '@hono/zod-openapi';
import type { ErrorCode } from './errors.ts';

export type HttpMethod = 'get' | 'post' | 'put' | 'patch' | 'delete';

export interface Operation<
  P extends z.ZodObject = z.ZodObject,
  Q extends z.ZodObject = z.ZodObject,
  B extends z.ZodType = z.ZodType,
  R extends z.ZodType = z.ZodType,
> {
  /** `reservations.renew`: collection, dot, verb. */
  readonly name: string;
  readonly method: HttpMethod;
  /** `/v1/reservations/{id}/renew`. */
  readonly path: string;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  /** Undefined for a stream. */
  readonly output: R;
  readonly successStatus: 200 | 201 | 204;
  readonly iam: {
    /** `compute:reservations:renew`. */
    readonly action: string;
    /** Resource type that the question is asked about. */
    readonly resource: `compute-${string}`;
    /**
     * Which resource: `collection` asks on `<type>/*` of the caller's tenant before anything is read;
     * `item` asks on the one that `{id}` names, `draft` on the draft just written.
     */
    readonly on: 'collection' | 'item' | 'draft';
    /** Only the platform's own (root) tenant may call it. */
    readonly rootOnly?: boolean;
  };
  readonly errors: readonly ErrorCode[];
  /** Takes an Idempotency-Key and replays its answer. */
  readonly idempotent: boolean;
  /** Answers an ETag and honours If-Match. */
  readonly etag?: boolean;
  /** `sse` for event streams. */
  readonly stream?: 'sse';
  /** Of a list: the fields that a table for people shows, in this order. */
  readonly columns?: readonly string[];
  /** One line for the CLI, the reference and OpenAPI's summary. */
  readonly help: string;
}

/** Checks a row against the shape and keeps its exact type. */
export function operation<const O extends Operation>(o: O): O {
  return o;
}

/** What a handler is given: path and query fields side by side, the body under `body`. */
export type Input<O extends Operation> = (O extends { readonly params: infer P extends z.ZodObject }
  ? z.output<P>
  : unknown) &
  (O extends { readonly query: infer Q extends z.ZodObject } ? z.output<Q> : unknown) &
  (O extends { readonly body: infer B extends z.ZodType } ? { body: z.output<B> } : unknown);
export type Output<O extends Operation> = z.input<O['output']>;
