/** The gateway's settings, from the environment. A PEM may be given itself or as the name of a file. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { problem } from '#core/kernel/errors.ts';

const port = z.coerce.number().int().min(0).max(65_535);
const rate = z.coerce.number().positive().max(10_000);

/** Every setting; the reference is made of it. */
export const Environment = z.object({
  DATABASE_URL: z.string().min(1).meta({ description: 'Pooled connection string of the database.' }),
  API_URL: z.url().meta({ description: 'Base URL of the API, which signs certificates.' }),
  GATEWAY_TOKEN: z.string().min(1).meta({ description: 'The same as the Worker’s.' }),
  GATEWAY_PORT: port.meta({ description: 'Port of the sessions of machines, under mutual TLS.' }),
  JOIN_PORT: port.meta({ description: 'Port of joins, where a machine has no certificate yet.' }),
  BIND_ADDRESS: z.string().default('127.0.0.1').meta({ description: 'Address that both ports listen on.' }),
  GATEWAY_ADDRESSES: z
    .string()
    .optional()
    .meta({ description: '`host:port` under which machines reach the session port; several with commas.' }),
  GATEWAY_CERT_PEM: z
    .string()
    .includes('-----BEGIN CERTIFICATE-----')
    .meta({ description: 'Certificate that the gateway shows to machines, leaf first.' }),
  GATEWAY_KEY_PEM: z.string().includes('PRIVATE KEY-----').meta({ description: 'Its private key.' }),
  CA_CERT_PEM: z
    .string()
    .includes('-----BEGIN CERTIFICATE-----')
    .meta({ description: 'Authorities of machines’ certificates: the present one first, then former ones.' }),
  ADMIN_PORT: port
    .optional()
    .meta({ description: 'Port of readiness, liveness and metrics over plain HTTP; none without it.' }),
  ADMIN_ADDRESS: z.string().default('127.0.0.1').meta({ description: 'Address that the admin port listens on.' }),
  REGION: z.string().min(1).default('local').meta({ description: 'Region, for the names of gateways.' }),
  GATEWAY_ID: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/)
    .optional()
    .meta({
      description: 'Name of this gateway, the same at every start. A newer process of that name ends this one.',
    }),
  CONNECTS_PER_SECOND: rate.default(150).meta({
    description: 'Connections a second let into TLS: half of what the host can do, so that heartbeats keep the rest.',
  }),
  DATABASE_CONNECTIONS: z.coerce
    .number()
    .int()
    .min(2)
    .max(100)
    .default(8)
    .meta({ description: 'Connections to the database.' }),
});

export interface GatewayConfig {
  readonly databaseUrl: string;
  readonly databaseConnections: number;
  readonly bindAddress: string;
  readonly sessionPort: number;
  readonly joinPort: number;
  readonly adminPort: number | undefined;
  readonly adminAddress: string;
  readonly addresses: readonly string[];
  readonly certificatePem: string;
  readonly privateKeyPem: string;
  readonly authoritiesPem: string;
  readonly apiUrl: string;
  readonly gatewayToken: string;
  readonly region: string;
  readonly gatewayId: string;
  readonly connectsPerSecond: number;
}

/** Throws INVALID_REQUEST that names each variable. */
export function readConfig(env: Readonly<Record<string, string | undefined>>): GatewayConfig {
  const given: Record<string, string> = {};
  for (const name of Object.keys(Environment.shape)) {
    const file = env[`${name}_FILE`];
    const value = env[name] ?? (file === undefined ? undefined : readFileSync(file, 'utf8'));
    if (value !== undefined && value !== '') given[name] = value;
  }
  const result = Environment.safeParse(given);
  if (!result.success) {
    throw problem('INVALID_REQUEST', 'the gateway is not configured', {
      errors: result.error.issues.map((i) => ({ field: i.path.map(String).join('.'), message: i.message })),
    });
  }
  const e = result.data;
  return {
    databaseUrl: e.DATABASE_URL,
    databaseConnections: e.DATABASE_CONNECTIONS,
    bindAddress: e.BIND_ADDRESS,
    sessionPort: e.GATEWAY_PORT,
    joinPort: e.JOIN_PORT,
    adminPort: e.ADMIN_PORT,
    adminAddress: e.ADMIN_ADDRESS,
    addresses: (e.GATEWAY_ADDRESSES ?? '').split(',').flatMap((a) => (a.trim() === '' ? [] : [a.trim()])),
    certificatePem: e.GATEWAY_CERT_PEM,
    privateKeyPem: e.GATEWAY_KEY_PEM,
    authoritiesPem: e.CA_CERT_PEM,
    apiUrl: e.API_URL,
    gatewayToken: e.GATEWAY_TOKEN,
    region: e.REGION,
    gatewayId: e.GATEWAY_ID ?? `${e.REGION}-1`,
    connectsPerSecond: e.CONNECTS_PER_SECOND,
  };
}
