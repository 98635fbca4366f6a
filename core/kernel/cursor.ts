/**
 * Opaque, tamper-evident cursors: a position, sealed for one operation, tenant and filter by an HMAC. A cursor of
 * another list, or one that somebody changed, is refused and never answers data.
 */
import { canonicalJson, type Json } from './canonical-json.ts';
import { problem } from './errors.ts';

export interface CursorScope {
  readonly operation: string;
  readonly tenantId: string;
  /** Everything else that decides which rows the list has, and their order. */
  readonly filter: Json;
}

const MAC_BYTES = 16;

const toBase64Url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');

function fromBase64Url(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9_-]+$/.test(text)) return undefined;
  try {
    return Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

async function mac(key: Uint8Array, scope: CursorScope, position: Uint8Array): Promise<Uint8Array> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const signing = await crypto.subtle.importKey('raw', key as BufferSource, algorithm, false, ['sign']);
  const head = new TextEncoder().encode(canonicalJson([scope.operation, scope.tenantId, scope.filter]));
  const all = new Uint8Array(head.length + 1 + position.length);
  all.set(head);
  all.set(position, head.length + 1);
  return new Uint8Array(await crypto.subtle.sign('HMAC', signing, all)).slice(0, MAC_BYTES);
}

/** The position must hold exact values: instants as text with microseconds, never rounded. */
export async function sealCursor(key: Uint8Array, scope: CursorScope, position: Json): Promise<string> {
  const bytes = new TextEncoder().encode(canonicalJson(position));
  const sealed = new Uint8Array(MAC_BYTES + bytes.length);
  sealed.set(await mac(key, scope, bytes));
  sealed.set(bytes, MAC_BYTES);
  return toBase64Url(sealed);
}

/** Throws INVALID_CURSOR. */
export async function openCursor(key: Uint8Array, scope: CursorScope, cursor: string): Promise<Json> {
  const sealed = fromBase64Url(cursor);
  if (sealed !== undefined && sealed.length > MAC_BYTES) {
    const bytes = sealed.slice(MAC_BYTES);
    const wanted = await mac(key, scope, bytes);
    let differs = 0;
    for (let i = 0; i < MAC_BYTES; i++) differs |= wanted[i]! ^ sealed[i]!;
    if (differs === 0) return JSON.parse(new TextDecoder().decode(bytes)) as Json;
  }
  throw problem('INVALID_CURSOR', 'the cursor was changed, or belongs to another list, filter, order or tenant');
}
