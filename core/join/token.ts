/**
 * Join tokens: `bcjt_<id>.<secret>`. The part before the dot is the token's own id, by which its row is found; the
 * secret is 32 random bytes in base64url. At rest stands only the SHA-256 of the secret: it has the full entropy of a
 * key, so a slow hash would protect nothing more.
 */
import { sha256Hex } from '../kernel/canonical-json.ts';
import { type Id, isId, newId } from '../kernel/ids.ts';

const SECRET_BYTES = 32;
const SECRET = /^[A-Za-z0-9_-]{43}$/;

export interface MadeJoinToken {
  readonly id: Id<'joinToken'>;
  /** Shown once, never stored. */
  readonly token: string;
  readonly secretHash: string;
}

export function makeJoinToken(): MadeJoinToken {
  const id = newId('joinToken');
  const bytes = crypto.getRandomValues(new Uint8Array(SECRET_BYTES));
  const secret = btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
  return { id, token: `${id}.${secret}`, secretHash: sha256Hex(secret) };
}

export interface ParsedJoinToken {
  readonly id: Id<'joinToken'>;
  readonly secretHash: string;
}

/** Undefined for whatever cannot be a join token. */
export function parseJoinToken(text: string): ParsedJoinToken | undefined {
  const dot = text.indexOf('.');
  const [id, secret] = [text.slice(0, dot), text.slice(dot + 1)];
  if (dot < 0 || !isId('joinToken', id) || !SECRET.test(secret)) return undefined;
  return { id, secretHash: sha256Hex(secret) };
}

/** Compares without telling by its duration where two texts differ. Lengths are not secret. */
export function equalSecrets(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let i = 0; i < a.length; i++) difference |= a.charCodeAt(i) ^ b.charCodeAt(i);
  return difference === 0;
}
