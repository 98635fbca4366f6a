/**
 * The API without a socket: the Worker's own application in this process, so that requests are parsed, authenticated,
 * decided and answered as at the edge. A refusal is thrown as the problem document that a client would read.
 */
import type { z } from '@hono/zod-openapi';
import { iamCatalog } from '#core/iam/catalog.ts';
import type { Database } from '#core/kernel/database.ts';
import type { ErrorCode, Problem, ProblemBody } from '#core/kernel/errors.ts';
import type { Operation, Output } from '#core/kernel/operations.ts';
import { systemClock } from '#core/kernel/time.ts';
import { IAM_ACTIONS_OF_COMPUTE, OPERATIONS } from '#core/operations.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import type { Services } from '#services/context.ts';
import { apiApp } from '#workers/api/app.ts';
import { HANDLERS } from '#workers/api/handlers.ts';

type Operations = Omit<typeof OPERATIONS, 'watch'>;
export type ApiName = keyof Operations;
/** As a client gives it: path and query fields side by side, the body under `body`. */
export type ApiInput<O extends Operation> = (O extends { readonly params: infer P extends z.ZodObject }
  ? z.input<P>
  : unknown) &
  (O extends { readonly query: infer Q extends z.ZodObject } ? z.input<Q> : unknown) &
  (O extends { readonly body: infer B extends z.ZodType } ? { body: z.input<B> } : unknown);

export interface CallOptions {
  /** Idempotency-Key; a fresh one where nothing is said. */
  readonly key?: string;
  readonly ifMatch?: number;
  /** The body's very text, instead of the input's. */
  readonly text?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export class Refused extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly body: ProblemBody;
  constructor(status: number, body: ProblemBody) {
    super(`${body.code}: ${body.detail}`);
    this.code = body.code;
    this.status = status;
    this.body = body;
  }
}

export interface TestApi {
  call<N extends ApiName>(
    who: { readonly token: string },
    name: N,
    input: ApiInput<Operations[N]>,
    o?: CallOptions,
  ): Promise<Output<Operations[N]>>;
  /** The same, with whatever input and the response as it comes. */
  send(who: { readonly token: string }, name: ApiName, input: unknown, o?: CallOptions): Promise<Response>;
  /** Keys that were woken by commits, for who runs the reconcilers. */
  readonly pokes: { kind: string; key: string }[];
  /** Errors of ours, as an operator would find them in the log. */
  readonly reports: Problem[];
}

export function testApi(db: Database, over: Partial<Services> = {}): TestApi {
  const pokes: { kind: string; key: string }[] = [];
  const reports: Problem[] = [];
  const services: Services = {
    db,
    iam: embeddedIam(db, { clock: systemClock, catalog: iamCatalog(IAM_ACTIONS_OF_COMPUTE) }),
    poke: (wakes) => void pokes.push(...wakes),
    cursorKey: new Uint8Array(32).fill(7),
    webhookAddresses: { allowLoopback: true },
    ...over,
  };
  const app = apiApp({
    services,
    handlers: HANDLERS,
    streams: {},
    publicUrl: 'http://api.test',
    ready: async () => {},
    report: (e) => void reports.push(e),
  });

  const send: TestApi['send'] = async (who, name, input, o = {}) => {
    const operation = OPERATIONS[name] as unknown as Operation;
    const { body, ...fields } = input as Record<string, unknown>;
    const inPath = Object.keys(operation.params?.shape ?? {});
    let path = operation.path;
    for (const p of inPath) path = path.replace(`{${p}}`, encodeURIComponent(String(fields[p])));
    const query = new URLSearchParams();
    for (const [k, v] of Object.entries(fields)) {
      if (!inPath.includes(k) && v !== undefined) query.set(k, String(v));
    }
    const text = o.text ?? (body === undefined ? undefined : JSON.stringify(body));
    return app.request(`${path}${query.size === 0 ? '' : `?${query}`}`, {
      method: operation.method.toUpperCase(),
      headers: {
        authorization: `Bearer ${who.token}`,
        ...(operation.idempotent ? { 'idempotency-key': o.key ?? crypto.randomUUID() } : {}),
        ...(o.ifMatch === undefined ? {} : { 'if-match': `"${o.ifMatch}"` }),
        ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        ...o.headers,
      },
      ...(text === undefined ? {} : { body: text }),
    });
  };
  return {
    pokes,
    reports,
    send,
    async call(who, name, input, o) {
      const response = await send(who, name, input, o);
      const answer = await response.json();
      if (!response.ok) throw new Refused(response.status, answer as ProblemBody);
      return answer as never;
    },
  };
}
