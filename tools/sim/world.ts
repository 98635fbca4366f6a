/** A control plane's inside for simulations: temporary Postgres, migrated, with the embedded IAM and some tenants. */
import { iamCatalog } from '#core/iam/catalog.ts';
import type { Caller, IamPort } from '#core/iam/port.ts';
import type { Database } from '#core/kernel/database.ts';
import type { Log } from '#core/kernel/log.ts';
import { systemClock } from '#core/kernel/time.ts';
import { seedRoot, seedTenant } from '#kit/tenants.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { embeddedIam } from '#plugins/iam/embedded.ts';
import { migrateProduct } from '../../cli/dev/migrations.ts';
import { startPostgres } from '../../cli/dev/postgres.ts';

/** About four connections a core in all: beyond that throughput falls and the tail explodes. */
const CLIENT_CONNECTIONS = 6;
const SYSTEM_CONNECTIONS = 4;

export interface World {
  /** For clients: a pool of few connections, with a queue in front. */
  readonly db: Database;
  /** For reconcilers and machines, which must not stand in the clients' queue. */
  readonly system: Database;
  readonly url: string;
  readonly iam: IamPort;
  readonly log: Log;
  readonly rootTenant: string;
  readonly tenants: readonly string[];
  /** Tells whoever runs the reconcilers that something was woken; set by the one who starts them. */
  poke: () => void;
  callerOf(tenantId: string): Promise<Caller>;
  close(): Promise<void>;
}

/** What a simulation prints of the product's own log: warnings and errors, to standard error. */
const log: Log = {
  debug: () => {},
  info: () => {},
  warn: (fields, message) => console.error(JSON.stringify({ level: 'warn', message, ...fields })),
  error: (fields, message) => console.error(JSON.stringify({ level: 'error', message, ...fields })),
};

export async function openWorld(o: { tenants: number; actions?: readonly string[] }): Promise<World> {
  const server = await startPostgres({});
  const db = openPg(server.url, { max: CLIENT_CONNECTIONS });
  const system = openPg(server.url, { max: SYSTEM_CONNECTIONS });
  await migrateProduct(db);
  const root = await seedRoot(db);
  const tokens = new Map<string, string>();
  for (let i = 0; i < o.tenants; i++) {
    const t = await seedTenant(db, `tenant ${i}`);
    tokens.set(t.id, t.token);
  }
  const actions =
    o.actions ?? ['create', 'get', 'list', 'renew', 'release', 'explain'].map((v) => `compute:reservations:${v}`);
  const iam = embeddedIam(db, { clock: systemClock, catalog: iamCatalog(actions) });
  return {
    db,
    system,
    url: server.url,
    iam,
    log,
    rootTenant: root.id,
    tenants: [...tokens.keys()],
    poke: () => {},
    callerOf: (tenantId) => iam.authenticate(tokens.get(tenantId), { requestId: 'simulation' }),
    async close() {
      await Promise.all([db.close(), system.close()]);
      await server.stop();
    },
  };
}
