/**
 * Opaque credentials: `biam_<kind>_`, 32 random bytes, and a checksum, both base64url; 58 characters. The checksum
 * proves nothing: it lets a mistyped or cut token be refused before anything is looked up. At rest stands only the
 * SHA-256 of the whole token.
 */
import { sha256Hex } from '../kernel/canonical-json.ts';

export const TOKEN_KINDS = { ses: 'user', key: 'api-key', dlg: 'delegated' } as const;
export type TokenKind = keyof typeof TOKEN_KINDS;
export type TokenSession = (typeof TOKEN_KINDS)[TokenKind];

const RANDOM_BYTES = 32;
const SHAPE = /^biam_(ses|key|dlg)_[A-Za-z0-9_-]{43}[A-Za-z0-9_-]{6}$/;
const CHECKSUM_CHARS = 6;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let bit = 0; bit < 8; bit++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c;
});

/** CRC-32 as IEEE 802.3 and zlib compute it, of a text in ASCII: every request brings one. */
export function crc32(ascii: string): number {
  let c = 0xffffffff;
  for (let i = 0; i < ascii.length; i++) c = CRC_TABLE[(c ^ ascii.charCodeAt(i)) & 0xff]! ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');
}

function checksum(body: string): string {
  const crc = crc32(body);
  return base64url(Uint8Array.of(crc >>> 24, crc >>> 16, crc >>> 8, crc));
}

export interface MadeToken {
  /** Shown once, never stored. */
  readonly token: string;
  readonly hash: string;
}

export function makeToken(kind: TokenKind): MadeToken {
  const body = `biam_${kind}_${base64url(crypto.getRandomValues(new Uint8Array(RANDOM_BYTES)))}`;
  const token = body + checksum(body);
  return { token, hash: sha256Hex(token) };
}

export interface ParsedToken {
  readonly session: TokenSession;
  readonly hash: string;
}

/** Undefined for whatever cannot be one of our tokens. */
export function parseToken(token: string): ParsedToken | undefined {
  const shape = SHAPE.exec(token);
  if (shape === null) return undefined;
  if (checksum(token.slice(0, -CHECKSUM_CHARS)) !== token.slice(-CHECKSUM_CHARS)) return undefined;
  return { session: TOKEN_KINDS[shape[1] as TokenKind], hash: sha256Hex(token) };
}
