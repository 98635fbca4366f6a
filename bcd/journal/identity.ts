/**
 * Who this machine is to the control plane: node id, private key, certificate and the pins it trusts. One file, so that
 * key and certificate change together or not at all; readable by its owner alone. The key of a join that is under way
 * stands in a second file, written before the first try: asked again with the same key, JoinService answers the same
 * admission and no second use of the token is spent.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { problem } from '#core/kernel/errors.ts';
import { removeDurably, writeDurably } from '../durable-file.ts';

const pem = (label: string) =>
  z
    .string()
    .max(100_000)
    .refine((text) => text.includes(`-----BEGIN ${label}-----`), `expected PEM "${label}"`);

export const identitySchema = z.object({
  version: z.literal(1),
  nodeId: z.string().min(1),
  siteId: z.string().min(1).optional(),
  spiffeId: z.string().startsWith('spiffe://'),
  role: z.enum(['node', 'site', 'ramdisk', 'node-tenant']),
  /** PKCS#8. */
  privateKeyPem: pem('PRIVATE KEY'),
  /** Leaf first. */
  certificatePem: pem('CERTIFICATE'),
  /** What a gateway's certificate must chain to. */
  trustPem: pem('CERTIFICATE'),
  notAfter: z.iso.datetime({ offset: true }),
  /** `host:port` of each gateway. */
  gateways: z.array(z.string().min(1)).max(64),
  /** `host:port` of a gateway's join port, for a new admission when the certificate lapsed. */
  joinAddress: z.string().min(1).optional(),
});
export type Identity = z.infer<typeof identitySchema>;

const IDENTITY_FILE = 'identity.json';
const JOIN_KEY_FILE = 'join-key.pem';

/** Undefined when the machine has not joined. Throws INVALID_REQUEST for a file that is open to others or damaged. */
export async function loadIdentity(stateDirectory: string): Promise<Identity | undefined> {
  const path = join(stateDirectory, IDENTITY_FILE);
  const text = await readPrivate(path);
  if (text === undefined) return undefined;
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw damaged(path, 'it is not JSON');
  }
  const result = identitySchema.safeParse(data);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw damaged(path, `${issue.path.map(String).join('.') || 'document'}: ${issue.message}`);
}

export async function saveIdentity(stateDirectory: string, identity: Identity): Promise<void> {
  const text = `${JSON.stringify(identitySchema.parse(identity), null, 2)}\n`;
  await writeDurably(join(stateDirectory, IDENTITY_FILE), text, 0o600);
}

/** The machine left, or was told to forget: key and certificate go. */
export async function forgetIdentity(stateDirectory: string): Promise<void> {
  await removeDurably(join(stateDirectory, IDENTITY_FILE));
}

export async function loadJoinKey(stateDirectory: string): Promise<string | undefined> {
  return readPrivate(join(stateDirectory, JOIN_KEY_FILE));
}
export async function saveJoinKey(stateDirectory: string, privateKeyPem: string): Promise<void> {
  await writeDurably(join(stateDirectory, JOIN_KEY_FILE), privateKeyPem, 0o600);
}
/** After the identity is saved. */
export async function clearJoinKey(stateDirectory: string): Promise<void> {
  await removeDurably(join(stateDirectory, JOIN_KEY_FILE));
}

async function readPrivate(path: string): Promise<string | undefined> {
  try {
    const { mode } = await stat(path);
    if ((mode & 0o077) !== 0) {
      const shown = (mode & 0o777).toString(8).padStart(4, '0');
      throw damaged(path, `others may read it (mode ${shown}); if nobody did, run chmod 600, else join anew`);
    }
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function damaged(path: string, why: string) {
  return problem('INVALID_REQUEST', `the identity file ${path} cannot be used: ${why}`, {
    errors: [{ field: path, message: why }],
  });
}
