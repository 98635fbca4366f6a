/**
 * Canonical JSON: one text for equal values (keys sorted by code unit, no white space, numbers as JavaScript prints
 * them, so 1.0 is 1). Fingerprints of requests, NodeSpec generations and inventory section hashes rest on it.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined };

/** Members that are `undefined` are left out. Throws on a number that JSON has no text for. */
export function canonicalJson(value: Json): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`no JSON for ${value}`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map((v) => canonicalJson(v ?? null)).join(',')}]`;
  const object = value as { readonly [key: string]: Json | undefined };
  const members = Object.keys(object)
    .filter((k) => object[k] !== undefined)
    .sort()
    .map((k) => `${JSON.stringify(k)}:${canonicalJson(object[k] as Json)}`);
  return `{${members.join(',')}}`;
}

/**
 * SHA-256 of the text, in lower-case hex. By a library and not by WebCrypto: for a short text the way to its threads
 * and back costs a hundred times the hash.
 */
export function sha256Hex(text: string): string {
  return bytesToHex(sha256(utf8ToBytes(text)));
}

export function canonicalHash(value: Json): string {
  return sha256Hex(canonicalJson(value));
}
