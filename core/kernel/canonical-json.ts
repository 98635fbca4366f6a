/**
 * Canonical JSON: one text for equal values (keys sorted by code unit, no white space, numbers as JavaScript prints
 * them, so 1.0 is 1). Fingerprints of requests, NodeSpec generations and inventory section hashes rest on it.
 */
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

/** SHA-256 of the text, in lower-case hex. */
export async function sha256Hex(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return Array.from(digest, (b) => b.toString(16).padStart(2, '0')).join('');
}

export async function canonicalHash(value: Json): Promise<string> {
  return sha256Hex(canonicalJson(value));
}
