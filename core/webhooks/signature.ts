/**
 * Standard Webhooks signatures (symmetric, `v1`): HMAC-SHA256 over the raw bytes of `id.timestamp.body`, one signature
 * for each live secret in one header, so that a receiver may change over while a rotation lasts.
 *
 * A signature states which delivery it is for; the timestamp is the attempt's own and the id is the event's, the same
 * at every attempt.
 */
import { problem } from '../kernel/errors.ts';

const PREFIX = 'whsec_';
const SECRET_BYTES = 32;
/** The standard's bounds for a symmetric secret. */
const SECRET_BYTES_MIN = 24;
const SECRET_BYTES_MAX = 64;
/** How far a receiver lets the timestamp be off, either way. */
export const TOLERANCE_SECONDS = 300;

type Bytes = Uint8Array<ArrayBuffer>;

export interface SignedHeaders {
  readonly 'webhook-id': string;
  readonly 'webhook-timestamp': string;
  readonly 'webhook-signature': string;
}

export function newSecret(): string {
  return PREFIX + btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(SECRET_BYTES))));
}

/** The key's bytes. Throws INVALID_REQUEST for anything but `whsec_` and base64 of 24 to 64 bytes. */
export function secretBytes(secret: string): Bytes {
  try {
    if (!secret.startsWith(PREFIX)) throw new Error('no prefix');
    const bytes = bytesOf(secret.slice(PREFIX.length));
    if (bytes.length < SECRET_BYTES_MIN || bytes.length > SECRET_BYTES_MAX) throw new Error('length');
    return bytes;
  } catch {
    throw problem('INVALID_REQUEST', 'not a webhook secret', {
      errors: [{ field: 'secret', message: 'expected "whsec_" and the base64 of 24 to 64 bytes' }],
    });
  }
}

/** The headers of one attempt, signed with every secret given; the newest comes first. */
export async function sign(
  id: string,
  timestampSeconds: number,
  body: string | Uint8Array,
  secrets: readonly string[],
): Promise<SignedHeaders> {
  const content = signedContent(id, String(timestampSeconds), body);
  const signatures = await Promise.all(
    secrets.map(async (secret) => {
      const mac = await crypto.subtle.sign('HMAC', await hmacKey(secret), content);
      return `v1,${btoa(String.fromCharCode(...new Uint8Array(mac)))}`;
    }),
  );
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestampSeconds),
    'webhook-signature': signatures.join(' '),
  };
}

export type Verdict = 'valid' | 'missing-headers' | 'bad-timestamp' | 'too-old' | 'too-new' | 'no-match';

/**
 * Whether any `v1` signature of the header fits the secret. Unknown versions and junk between them are skipped; the
 * comparison takes the same time wherever the difference is.
 */
export async function verify(
  headers: Readonly<Partial<Record<keyof SignedHeaders, string>>>,
  body: string | Uint8Array,
  secret: string,
  nowSeconds: number,
  toleranceSeconds: number = TOLERANCE_SECONDS,
): Promise<Verdict> {
  const id = headers['webhook-id'];
  const timestamp = headers['webhook-timestamp'];
  const list = headers['webhook-signature'];
  if (!id || !timestamp || !list) return 'missing-headers';
  if (!/^\d{1,12}$/.test(timestamp)) return 'bad-timestamp';
  if (nowSeconds - Number(timestamp) > toleranceSeconds) return 'too-old';
  if (Number(timestamp) - nowSeconds > toleranceSeconds) return 'too-new';
  const key = await hmacKey(secret);
  const content = signedContent(id, timestamp, body);
  for (const part of list.split(' ')) {
    if (!part.startsWith('v1,')) continue;
    const mac = tryBytesOf(part.slice(3));
    if (mac !== undefined && (await crypto.subtle.verify('HMAC', key, mac, content))) return 'valid';
  }
  return 'no-match';
}

function signedContent(id: string, timestamp: string, body: string | Uint8Array): Bytes {
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const tail = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const all = new Uint8Array(head.length + tail.length);
  all.set(head);
  all.set(tail, head.length);
  return all;
}

function hmacKey(secret: string): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', secretBytes(secret), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
    'verify',
  ]);
}

function bytesOf(base64: string): Bytes {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

function tryBytesOf(base64: string): Bytes | undefined {
  try {
    return bytesOf(base64);
  } catch {
    return undefined;
  }
}
