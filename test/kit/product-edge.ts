/** The whole product's Worker in workerd, before a database with a fleet, two tenants and an operator. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Edge } from '#cli/dev/edge.ts';
import { localSecrets, TRUST_DOMAIN } from '#cli/dev/secrets.ts';
import { type TestDatabase, testDatabase } from './database.ts';
import { testEdge } from './edge.ts';
import { type Fleet, offerPool, seedFleet } from './fleet.ts';
import { seedRoot, seedTenant, type TestTenant } from './tenants.ts';

export interface ProductEdge {
  readonly t: TestDatabase;
  readonly edge: Edge;
  readonly root: TestTenant;
  /** Has 8 GPUs on one node by an offer. */
  readonly tenant: TestTenant;
  /** Has nothing. */
  readonly other: TestTenant;
  readonly fleet: Fleet;
  /** Undefined as `token` sends no credential. */
  fetch(token: string | undefined, method: string, path: string, o?: Send): Promise<Response>;
  /** The answer as JSON; the status beside it. */
  json(token: string | undefined, method: string, path: string, o?: Send): Promise<Answer>;
  close(): Promise<void>;
}

export interface Send {
  readonly body?: unknown;
  /** Instead of `body`, as it is. */
  readonly raw?: BodyInit;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the API answered.
  readonly body: any;
}

export async function productEdge(): Promise<ProductEdge> {
  const folder = mkdtempSync(join(tmpdir(), 'better-compute-edge-'));
  const t = await testDatabase();
  const root = await seedRoot(t.db);
  const tenant = await seedTenant(t.db, 'tenant');
  const other = await seedTenant(t.db, 'other');
  const fleet = await seedFleet(t.db, { tenantId: root.id, nodes: 1 });
  await offerPool(t.db, fleet, tenant.id, 8);
  const secrets = await localSecrets(folder);
  const edge = await testEdge(t, {
    CA_CERT_PEM: secrets.caCertPem,
    CA_KEY_PEM: secrets.caKeyPem,
    TRUST_DOMAIN,
    GATEWAY_TOKEN: secrets.gatewayToken,
  });
  const send: ProductEdge['fetch'] = (token, method, path, o = {}) => {
    const body = o.raw ?? (o.body === undefined ? undefined : JSON.stringify(o.body));
    return fetch(`${edge.url}${path}`, {
      method,
      headers: {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(method === 'GET' ? {} : { 'idempotency-key': o.key ?? crypto.randomUUID() }),
        ...o.headers,
      },
      ...(body === undefined ? {} : { body }),
      ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
    } as RequestInit);
  };
  return {
    t,
    edge,
    root,
    tenant,
    other,
    fleet,
    fetch: send,
    async json(...args) {
      const response = await send(...args);
      const text = await response.text();
      return { status: response.status, headers: response.headers, body: text === '' ? undefined : JSON.parse(text) };
    },
    async close() {
      await edge.stop();
      await t.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
