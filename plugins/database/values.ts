/**
 * How values travel: every handle sends parameters as text and takes columns as the text that Postgres printed, and
 * both conversions stand here once. A value is therefore the same whichever handle brought it.
 *
 * Beside what the port names, int2, oid and the floats are numbers, and arrays of the named types are arrays of them.
 */
import { parse as parseArray } from 'postgres-array';
import type { Row, SqlValue } from '#core/kernel/database.ts';

type Decode = (text: string) => unknown;

/** The session runs in UTC; an offset that arrives all the same is taken into account. */
const TIMESTAMPTZ = /^(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::?(\d\d))?$/;

/** Always six digits after the point, so that equal instants are equal texts and later ones sort later. */
function instant(text: string): string {
  const m = TIMESTAMPTZ.exec(text);
  if (m === null) return text; // 'infinity', years before 1 or after 9999: no RFC 3339 text exists
  const [, year, month, day, hour, minute, second, fraction = '', sign, offsetHours, offsetMinutes = '00'] = m;
  const micros = fraction.padEnd(6, '0');
  if (offsetHours === '00' && offsetMinutes === '00') {
    return `${year}-${month}-${day}T${hour}:${minute}:${second}.${micros}Z`;
  }
  const local = Date.UTC(+year!, +month! - 1, +day!, +hour!, +minute!, +second!);
  const offset = (sign === '-' ? -1 : 1) * (+offsetHours! * 60 + +offsetMinutes) * 60_000;
  return `${new Date(local - offset).toISOString().slice(0, 19)}.${micros}Z`;
}

function integer(text: string): number {
  const n = Number(text);
  if (!Number.isSafeInteger(n)) throw new RangeError(`${text} does not fit a JavaScript number; cast it to text`);
  return n;
}

function bytes(text: string): Uint8Array {
  const out = new Uint8Array((text.length - 2) / 2);
  for (let i = 0; i < out.length; i++) out[i] = Number.parseInt(text.slice(2 + i * 2, 4 + i * 2), 16);
  return out;
}

const same: Decode = (text) => text;
const boolean: Decode = (text) => text === 't';
const json: Decode = (text) => JSON.parse(text) as unknown;
const arrayOf =
  (decode: Decode): Decode =>
  (text) =>
    parseArray(text, decode);

/** Type OIDs of pg_type; they are fixed for built-in types. */
const DECODERS: ReadonlyMap<number, Decode> = new Map<number, Decode>([
  [16, boolean],
  [17, bytes],
  [20, integer],
  [21, integer],
  [23, integer],
  [26, integer],
  [114, json],
  [700, Number],
  [701, Number],
  [1184, instant],
  [3802, json],
  [199, arrayOf(json)],
  [1000, arrayOf(boolean)],
  [1001, arrayOf(bytes)],
  [1002, arrayOf(same)],
  [1003, arrayOf(same)],
  [1005, arrayOf(integer)],
  [1007, arrayOf(integer)],
  [1009, arrayOf(same)],
  [1015, arrayOf(same)],
  [1016, arrayOf(integer)],
  [1021, arrayOf(Number)],
  [1022, arrayOf(Number)],
  [1185, arrayOf(instant)],
  [1231, arrayOf(same)],
  [2951, arrayOf(same)],
  [3807, arrayOf(json)],
]);

export interface RawColumn {
  readonly name: string;
  readonly dataTypeID: number;
}
export type RawRow = readonly (string | null)[];

export function decodeRows<R extends Row>(columns: readonly RawColumn[], rows: readonly RawRow[]): R[] {
  const decoders = columns.map((c) => DECODERS.get(c.dataTypeID) ?? same);
  return rows.map((raw) => {
    const row: Row = {};
    for (let i = 0; i < columns.length; i++) {
      const text = raw[i];
      row[columns[i]!.name] = text === null || text === undefined ? null : decoders[i]!(text);
    }
    return row as R;
  });
}

function encode(value: SqlValue | undefined): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (value instanceof Uint8Array) return `\\x${Array.from(value, (b) => b.toString(16).padStart(2, '0')).join('')}`;
  return `{${value.map((v) => `"${String(v).replace(/["\\]/g, '\\$&')}"`).join(',')}}`;
}

export function encodeParams(params: readonly (SqlValue | undefined)[] | undefined): (string | null)[] {
  return params === undefined ? [] : params.map(encode);
}

/** Leaves columns as text: both drivers take this as their `types`. */
export const rawTypes = { getTypeParser: () => (text: unknown) => text };
