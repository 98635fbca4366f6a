/**
 * TypeIDs: every id shows what it names (`rsv_01h…`), sorts by creation time and is safe in a URL.
 * The kinds and their prefixes stand in one table; `Id<'node'>` is a string that only a node's id may fill.
 */
import { fromString, getType, TypeID, typeid } from 'typeid-js';
import { problem } from './errors.ts';

/** Kind -> visible prefix. Append only: a prefix, once shown to a user, never changes its meaning. */
export const ID_PREFIXES = {
  tenant: 'tnt',
  identity: 'idn',
  apiKey: 'key',
  session: 'ses',
  policy: 'pol',
  role: 'rol',
  binding: 'bnd',
  site: 'site',
  pool: 'pool',
  offer: 'ofr',
  joinToken: 'bcjt',
  node: 'node',
  device: 'dev',
  reservation: 'rsv',
  allocation: 'alc',
  usageWindow: 'use',
  event: 'evt',
  webhook: 'whk',
  delivery: 'dlv',
  audit: 'aud',
  gateway: 'gtw',
  inventory: 'inv',
  certificate: 'crt',
  group: 'grp',
  delegation: 'dgn',
  confirmation: 'cnf',
} as const;

export type IdKind = keyof typeof ID_PREFIXES;
export type Id<K extends IdKind> = string & { readonly __id: K };

let source: (() => Uint8Array) | undefined;

/** For simulations, whose every run must make the same ids: 16 bytes an id, or undefined for ids of the time again. */
export function takeIds(from: (() => Uint8Array) | undefined): void {
  source = from;
}

/** A fresh id of the kind, ordered by the time of its making (UUIDv7). */
export function newId<K extends IdKind>(kind: K): Id<K> {
  const prefix = ID_PREFIXES[kind];
  return `${source === undefined ? typeid(prefix) : TypeID.fromUUIDBytes(prefix, source())}` as unknown as Id<K>;
}

/** The id that 16 given bytes name: how a draft's id follows from tenant, caller and key. */
export function idFromBytes<K extends IdKind>(kind: K, bytes: Uint8Array): Id<K> {
  const b = new Uint8Array(bytes.slice(0, 16));
  // Version 8 (custom) and the RFC 9562 variant: a derived id must never be mistaken for a time-ordered one.
  b[6] = (b[6]! & 0x0f) | 0x80;
  b[8] = (b[8]! & 0x3f) | 0x80;
  return `${TypeID.fromUUIDBytes(ID_PREFIXES[kind], b)}` as unknown as Id<K>;
}

export function isId<K extends IdKind>(kind: K, value: unknown): value is Id<K> {
  if (typeof value !== 'string' || !value.startsWith(`${ID_PREFIXES[kind]}_`)) return false;
  try {
    return getType(fromString(value)) === ID_PREFIXES[kind];
  } catch {
    return false;
  }
}

/** Parses an id from the outside. Throws INVALID_REQUEST naming the field and the prefix that was expected. */
export function parseId<K extends IdKind>(kind: K, value: unknown, field: string): Id<K> {
  if (isId(kind, value)) return value;
  throw problem('INVALID_REQUEST', `${field} is not a ${kind} id`, {
    errors: [{ field, message: `expected an id that starts with "${ID_PREFIXES[kind]}_"` }],
  });
}
