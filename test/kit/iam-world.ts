/** The embedded identity service with its face on a port, organisations and people in it. */

import { expect } from 'vitest';
import { iamCatalog } from '#core/iam/catalog.ts';
import type { AuthzResource } from '#core/iam/port.ts';
import { ROOT } from '#core/iam/root.ts';
import { isProblem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import { bootstrapIam } from '#plugins/iam/bootstrap.ts';
import { iamFace } from '#plugins/iam/http-face.ts';
import { type TestDatabase, testDatabase } from './database.ts';
import { type Served, serve } from './serve.ts';

const ACTIONS = ['reservations:create', 'reservations:read', 'nodes:drain', 'nodes:read', 'pools:read'].map(
  (a) => `compute:${a}`,
);
export const catalog = iamCatalog(ACTIONS);
export const meta = { requestId: 'test' };

export let t: TestDatabase;
export let face: Served;
export let call: (
  method: string,
  token: string | undefined,
  body: unknown,
  headers?: Record<string, string>,
) => Promise<Answer>;
export let boot: Awaited<ReturnType<typeof bootstrapIam>>;
export let serviceToken: string;

export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of many shapes.
  readonly data: any;
  readonly code: string | undefined;
}

/** To be called before the first test; what it opens is exported. */
export async function openIamWorld(): Promise<void> {
  t = await testDatabase();
  const app = iamFace(t.db, { clock: systemClock, catalog });
  face = await serve((request) => app.fetch(request));
  call = async (method, token, body, headers = {}) => {
    const response = await fetch(`${face.url}/api/iam/${method}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-better-iam': '1',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...headers,
      },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    const { data, error } = (await response.json()) as { data?: unknown; error?: { code: string } };
    return { status: response.status, data, code: error?.code };
  };
  boot = await bootstrapIam(t.db);
  const service = await ok('identities/create', boot.operatorToken!, {
    tenantId: ROOT,
    kind: 'service',
    name: 'compute',
  });
  const role = await ok('roles/create', boot.operatorToken!, {
    tenantId: ROOT,
    name: 'meter',
    permissions: ['iam:billing:record'],
  });
  await ok('bindings/create', boot.operatorToken!, {
    tenantId: ROOT,
    subjectType: 'identity',
    subjectId: service.identity.id,
    roleId: role.role.id,
  });
  const key = await ok('apiKeys/create', boot.operatorToken!, {
    tenantId: ROOT,
    identityId: service.identity.id,
    name: 'usage',
  });
  serviceToken = key.token;
}
export async function closeIamWorld(): Promise<void> {
  await face?.close();
  await t?.close();
}

// biome-ignore lint/suspicious/noExplicitAny: as above.
export async function ok(method: string, token: string, body: unknown): Promise<any> {
  const answer = await call(method, token, body);
  expect([method, answer.status, answer.code]).toEqual([method, 200, undefined]);
  return answer.data;
}

let made = 0;
/** An organisation of its own, its owner's token, and a way to add a person with one role. */
export async function organisation() {
  const slug = `org-${++made}`;
  const { tenant, session } = await ok('tenants/create', boot.operatorToken!, {
    tenantId: ROOT,
    name: slug,
    slug,
    owner: { name: 'owner' },
  });
  const tenantId: string = tenant.id;
  const owner: string = session.token;
  const person = async (statements: unknown[] | undefined, identity: object = {}) => {
    const who = await ok('identities/create', owner, { tenantId, kind: 'user', name: `person-${++made}`, ...identity });
    let roleId: string | undefined;
    let bindingId: string | undefined;
    if (statements !== undefined) {
      const body = { tenantId, name: `role-${made}`, document: { version: 1, statements } };
      roleId = (await ok('roles/create', owner, body)).role.id;
      const binding = { tenantId, subjectType: 'identity', subjectId: who.identity.id, roleId };
      bindingId = (await ok('bindings/create', owner, binding)).binding.id;
    }
    return { id: who.identity.id as string, token: who.session?.token as string, roleId, bindingId };
  };
  const row = async (resource: Partial<AuthzResource> = {}): Promise<AuthzResource> => {
    const full: AuthzResource = { type: 'compute-reservation', id: `rsv_${++made}`, tenantId, ...resource };
    await t.db.query('select project($1, $2, $3, $4, $5, $6, $7)', [
      full.type,
      full.id,
      full.tenantId,
      full.parentType ?? null,
      full.parentId ?? null,
      full.ownerId ?? null,
      JSON.stringify(full.attributes ?? {}),
    ]);
    return full;
  };
  return { tenantId, owner, person, row, slug };
}

export const allow = (actions: string[], resources = ['*'], conditions?: object) => ({
  effect: 'allow',
  actions,
  resources,
  ...(conditions === undefined ? {} : { conditions }),
});

export async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (e) {
    if (isProblem(e)) return e.code;
    throw e;
  }
  return 'nothing thrown';
}
