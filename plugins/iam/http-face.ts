/**
 * `POST /api/iam/<group>/<method>` over the embedded engine, in the conventions of the remote service: JSON in, `data` or
 * `error` out, `X-Better-IAM: 1` on every call, 64 KiB at most, no cookies. What the remote adapter speaks to, so that
 * one day another service can stand in this place. A denial's true reason never leaves; the audit chain keeps it.
 */
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { z } from 'zod';
import { IamError, type IamErrorCode } from '#core/iam/iam-error.ts';
import type { RequestMeta } from '#core/iam/port.ts';
import { overridesPolicies, tenantActive } from '#core/iam/snapshot.ts';
import type { Database } from '#core/kernel/database.ts';
import { type Check, Engine, type EngineOptions } from './engine.ts';
import { accessMethods } from './management/access.ts';
import { subjectMethods } from './management/bindings.ts';
import { confirmationMethods } from './management/confirmations.ts';
import { credentialMethods } from './management/credentials.ts';
import { delegationMethods } from './management/delegations.ts';
import { identityMethods } from './management/identities.ts';
import { insightMethods } from './management/insight.ts';
import { Call, id, type Methods, method } from './management/method.ts';
import { tenantMethods } from './management/tenants.ts';
import { usageMethods } from './management/usage.ts';
import { rows } from './storage.ts';

const BODY_MAX = 64 * 1024;
const BEARER_MAX = 4096;
const CHECKS_MAX = 50;
const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;

const resource = z.strictObject({ type: z.string().min(1).max(64), id: z.string().min(1).max(1024) });
const check = z.strictObject({ action: z.string().min(1).max(512), resource });

interface Projected extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly parent_type: string | null;
  readonly parent_id: string | null;
  readonly owner_id: string | null;
  readonly attributes: Record<string, string | number | boolean>;
}

/** What the product's own rows say of the resource. Never what the caller says. */
async function resolve(
  call: Call,
  tenantId: string,
  { action, resource: { type, id: key } }: z.output<typeof check>,
): Promise<Check> {
  if (!call.catalog.types.has(type)) throw new IamError('INVALID_RESOURCE_TYPE', `there is no resource type ${type}`);
  const bare = { action, resource: { type, id: key, tenantId } };
  // A collection has no row of its own.
  if (type === 'iam' || key === '*') return bare;
  const [row] = await call.read<Projected>(
    'select tenant_id, parent_type, parent_id, owner_id, attributes from authz_resources where id = $1 and type = $2',
    [key, type],
  );
  if (row === undefined) throw new IamError('NOT_FOUND', 'there is no such resource');
  if (row.tenant_id !== tenantId) throw new IamError('RESOURCE_MISMATCH', 'the resource belongs to another tenant');
  return {
    action,
    resource: {
      ...bare.resource,
      attributes: row.attributes,
      ...(row.owner_id === null ? {} : { ownerId: row.owner_id }),
      ...(row.parent_id === null ? {} : { parentId: row.parent_id }),
      ...(row.parent_type === null ? {} : { parentType: row.parent_type }),
    },
  };
}

async function answers(call: Call, tenantId: string, asked: z.output<typeof check>[]) {
  const results: { allowed: boolean; reason: string }[] = [];
  const open: { check: Check; index: number }[] = [];
  for (const [index, one] of asked.entries()) {
    const bare = { action: one.action, resource: { ...one.resource, tenantId } };
    const early = await call.engine.preliminary(call.session, tenantId, bare, call.meta);
    if (early !== undefined) results[index] = { allowed: false, reason: 'ACCESS_DENIED' };
    else open.push({ check: await resolve(call, tenantId, one), index });
  }
  const checks = open.map((o) => o.check);
  const decided = checks.length === 0 ? [] : await call.engine.ask(call.session, checks, call.meta);
  for (const [i, { decision }] of decided.entries()) {
    const reason = decision.allowed ? decision.reason : 'ACCESS_DENIED';
    results[open[i]!.index] = { allowed: decision.allowed, reason };
  }
  return results;
}

const decisionMethods: Methods = {
  authorize: method(check.extend({ tenantId: id }), async (call, { tenantId, ...one }) => {
    const [answer] = await answers(call, tenantId, [one]);
    return { ...answer!, matched: [] };
  }),
  authorizeMany: method(
    z.strictObject({ tenantId: id, checks: z.array(check).min(1).max(CHECKS_MAX) }),
    async (call, input) => {
      const found = await answers(call, input.tenantId, input.checks);
      return input.checks.map((one, i) => ({ ...one, ...found[i]! }));
    },
  ),
};

const METHODS: Methods = {
  ...decisionMethods,
  ...insightMethods,
  ...tenantMethods,
  ...identityMethods,
  ...credentialMethods,
  ...accessMethods,
  ...subjectMethods,
  ...delegationMethods,
  ...confirmationMethods,
  ...usageMethods,
};

function failure(c: Context, code: IamErrorCode, status: number, message: string, retryAfterMs?: number): Response {
  if (retryAfterMs !== undefined) c.header('retry-after', String(Math.ceil(retryAfterMs / 1000)));
  const error = { code, message, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
  return c.json({ error }, status as 400);
}

function bearer(c: Context): string | undefined {
  const match = /^bearer ([^\s]+)$/i.exec(c.req.header('authorization') ?? '');
  return match !== null && match[1]!.length <= BEARER_MAX ? match[1] : undefined;
}

async function jsonBody(c: Context): Promise<unknown> {
  if (!/^application\/json\b/i.test(c.req.header('content-type') ?? '')) {
    throw new IamError('INVALID_INPUT', 'Content-Type must be application/json');
  }
  try {
    return await c.req.json();
  } catch {
    throw new IamError('INVALID_INPUT', 'the body is not JSON');
  }
}

function parsed(schema: z.ZodType, body: unknown): never {
  const result = schema.safeParse(body);
  if (result.success) return result.data as never;
  const issue = result.error.issues[0]!;
  throw new IamError('INVALID_INPUT', `${issue.path.join('.') || 'the body'}: ${issue.message}`);
}

function metaOf(c: Context, sourceIp: string | undefined): RequestMeta {
  const given = c.req.header('x-request-id');
  const requestId = given !== undefined && REQUEST_ID.test(given) ? given : crypto.randomUUID();
  if (given === requestId) c.header('x-request-id', requestId);
  return { requestId, ...(sourceIp === undefined ? {} : { sourceIp }) };
}

export interface FaceOptions extends EngineOptions {
  /** Told what ended as INTERNAL_ERROR. */
  readonly onError?: (error: unknown) => void;
  /** The caller's address, where the host can vouch for it. */
  readonly sourceIp?: (request: Request) => string | undefined;
}

/** Answers `/api/iam/...`; anything else is 404. */
export function iamFace(db: Database, options: FaceOptions): Hono {
  const engine = new Engine(db, options);
  const app = new Hono();

  app.use('*', async (c, next) => {
    c.header('cache-control', 'no-store');
    c.header('x-content-type-options', 'nosniff');
    c.header('referrer-policy', 'no-referrer');
    await next();
  });
  app.get('/api/iam/health', async (c) => {
    const [row] = await rows<{ time: number }>(db, 'select iam.ms(compute_now()) as time');
    return c.json({ status: 'ok', database: 'ok', time: row!.time });
  });
  app.use(
    '/api/iam/*',
    bodyLimit({
      maxSize: BODY_MAX,
      onError: (c) => failure(c, 'PAYLOAD_TOO_LARGE', 413, `the body takes at most ${BODY_MAX} bytes`),
    }),
  );
  app.all('/api/iam/*', async (c) => {
    const name = c.req.path.slice('/api/iam/'.length);
    const found = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined;
    if (found === undefined) throw new IamError('NOT_FOUND', 'there is no such method');
    if (c.req.method !== 'POST') throw new IamError('METHOD_NOT_ALLOWED', 'methods are called by POST');
    if (c.req.header('x-better-iam') !== '1' || c.req.header('cookie') !== undefined) {
      throw new IamError('CSRF_REJECTED', 'send X-Better-IAM: 1, and no cookies');
    }
    const body = await jsonBody(c);
    const meta = metaOf(c, options.sourceIp?.(c.req.raw));
    // Asked afresh: whoever manages policies sees what they just wrote.
    const session = await engine.open(bearer(c), true);
    if (!tenantActive(session.snapshot) && !overridesPolicies(session.snapshot)) {
      throw new IamError('TENANT_INACTIVE', 'the tenant is not active');
    }
    return c.json({ data: await found.run(new Call(engine, session, meta), parsed(found.input, body)) });
  });
  app.notFound((c) => failure(c, 'NOT_FOUND', 404, 'there is nothing here'));
  app.onError((e, c) => {
    if (e instanceof IamError) return failure(c, e.code, e.status, e.message, e.retryAfterMs);
    options.onError?.(e);
    return failure(c, 'INTERNAL_ERROR', 500, 'something broke on our side');
  });
  return app;
}
