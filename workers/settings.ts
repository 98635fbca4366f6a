/**
 * Every setting of the Worker. wrangler.toml holds the variables; secrets are put with `wrangler secret put`. The
 * reference and the type of the environment are made of this table.
 */
export interface WorkerSetting {
  readonly kind: 'variable' | 'secret';
  readonly doc: string;
  /** Absent: it must be set. */
  readonly preset?: string;
}

export const WORKER_SETTINGS = {
  DATABASE_URL: { kind: 'secret', doc: "Neon's pooled connection string." },
  CA_CERT_PEM: {
    kind: 'secret',
    doc: 'Certificate of the authority that signs machines’ certificates; former ones that are still trusted may follow.',
  },
  CA_KEY_PEM: { kind: 'secret', doc: 'Its private key, PKCS#8, P-256.' },
  GATEWAY_TOKEN: {
    kind: 'secret',
    doc: 'What gateways prove themselves with: 32 random bytes as text. The key that seals cursors is derived from it.',
  },
  PUBLIC_URL: {
    kind: 'variable',
    doc: 'Where callers reach the API; stands in OpenAPI and in what machines are given.',
  },
  TRUST_DOMAIN: {
    kind: 'variable',
    doc: 'First part of every machine’s SPIFFE id. Never change it once machines have joined.',
  },
  IAM_MODE: {
    kind: 'variable',
    doc: '`embedded`: tenants, identities and policies in this database; `remote`: a Better IAM service.',
  },
  IAM_URL: { kind: 'variable', doc: 'For `remote`: base URL of the service.', preset: 'none' },
  IAM_ROOT_TENANT: { kind: 'variable', doc: 'For `remote`: id of its root tenant.', preset: 'none' },
  IAM_TOKEN: { kind: 'secret', doc: 'For `remote`: key to record usage with.', preset: 'none' },
  JOIN_ADDRESS: {
    kind: 'variable',
    doc: '`host:port` where machines join, for the command that joinTokens.create shows.',
    preset: 'none',
  },
  CLOCK_JUMP_SECONDS: {
    kind: 'variable',
    doc: 'A step of the clock of more than so many seconds between two looks, 60 at least, is a jump: nothing expires until it is back or has settled.',
    preset: '300',
  },
  CLOCK_SETTLE_SECONDS: {
    kind: 'variable',
    doc: 'After a jump the clock must go steadily for so long at least; a twentieth of the jump, a day at most, where that is longer.',
    preset: '300',
  },
  PG_PROXY: {
    kind: 'variable',
    doc: '`host:port` of a local Neon proxy, on one machine in development.',
    preset: 'none',
  },
  ALLOW_PRIVATE_WEBHOOKS: {
    kind: 'variable',
    doc: '`loopback` lets webhooks point to this machine; development alone.',
    preset: 'none',
  },
} as const satisfies Readonly<Record<string, WorkerSetting>>;

type Name = keyof typeof WORKER_SETTINGS;
type Optional = { [K in Name]: (typeof WORKER_SETTINGS)[K] extends { preset: string } ? K : never }[Name];

/** The settings as the Worker's environment carries them. */
export type WorkerSettings = { readonly [K in Exclude<Name, Optional>]: string } & {
  readonly [K in Optional]?: string;
};
