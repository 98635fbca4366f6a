/**
 * The firmware's own description of the machine, from the raw SMBIOS table (DSP0134). Structures that lie about their
 * length end the walk: what was read before them stands.
 */
import type { Dimm, SystemSection } from '#core/inventory/inventory.ts';
import { clean, given } from './source.ts';

export interface SmbiosFacts {
  readonly bios?: SystemSection['bios'];
  readonly vendor?: string;
  readonly product?: string;
  readonly version?: string;
  readonly serial?: string;
  readonly uuid?: string;
  readonly sku?: string;
  readonly family?: string;
  readonly board?: SystemSection['board'];
  readonly chassis?: SystemSection['chassis'];
  readonly processors: readonly string[];
  readonly dimms: readonly Dimm[];
}

const STRUCTURES_MAX = 4096;

interface Structure {
  readonly type: number;
  readonly body: Buffer;
  readonly strings: readonly string[];
}

function* structures(table: Buffer): Generator<Structure> {
  let at = 0;
  for (let n = 0; n < STRUCTURES_MAX && at + 4 <= table.length; n++) {
    const [type, length] = [table[at]!, table[at + 1]!];
    if (length < 4 || at + length > table.length) return;
    const body = table.subarray(at, at + length);
    const strings: string[] = [];
    let p = at + length;
    // Strings until an empty one; a structure without strings ends with two zero bytes.
    for (;;) {
      const end = table.indexOf(0, p);
      if (end < 0) return;
      if (end === p) break;
      strings.push(table.toString('latin1', p, end));
      p = end + 1;
    }
    yield { type, body, strings };
    if (type === 127) return;
    at = strings.length === 0 ? p + 2 : p + 1;
  }
}

/** Numbered string of a structure; 0 means "not specified". */
function text(s: Structure, offset: number): string | undefined {
  const index = s.body[offset];
  return index === undefined || index === 0 ? undefined : clean(s.strings[index - 1]);
}

/** The first three fields are little-endian (since SMBIOS 2.6, and in practice before). */
export function smbiosUuid(bytes: Buffer): string | undefined {
  if (bytes.length < 16) return undefined;
  const hex = (from: number, to: number, swap: boolean) => {
    const part = Buffer.from(bytes.subarray(from, to));
    return (swap ? part.reverse() : part).toString('hex');
  };
  return [hex(0, 4, true), hex(4, 6, true), hex(6, 8, true), hex(8, 10, false), hex(10, 16, false)].join('-');
}

const MEMORY_TYPES: Readonly<Record<number, string>> = {
  15: 'SDRAM',
  18: 'DDR',
  19: 'DDR2',
  24: 'DDR3',
  26: 'DDR4',
  27: 'LPDDR',
  28: 'LPDDR2',
  29: 'LPDDR3',
  30: 'LPDDR4',
  32: 'HBM',
  33: 'HBM2',
  34: 'DDR5',
  35: 'LPDDR5',
  36: 'HBM3',
};

const u16 = (b: Buffer, at: number) => (at + 2 <= b.length ? b.readUInt16LE(at) : undefined);
const u32 = (b: Buffer, at: number) => (at + 4 <= b.length ? b.readUInt32LE(at) : undefined);

function dimmSize(body: Buffer): number | undefined {
  const size = u16(body, 12);
  if (size === undefined || size === 0 || size === 0xffff) return undefined;
  if (size === 0x7fff) {
    const megabytes = u32(body, 28);
    return megabytes === undefined ? undefined : (megabytes & 0x7fffffff) * 1024 ** 2;
  }
  return (size & 0x8000) !== 0 ? (size & 0x7fff) * 1024 : size * 1024 ** 2;
}

/** An empty slot has no size and is no module. */
function dimm(s: Structure): Dimm[] {
  const sizeBytes = dimmSize(s.body);
  if (sizeBytes === undefined) return [];
  const speed = u16(s.body, 21);
  return [
    given({
      locator: text(s, 16),
      bank: text(s, 17),
      sizeBytes,
      type: MEMORY_TYPES[s.body[18] ?? 0],
      speedMts: speed === undefined || speed === 0 || speed === 0xffff ? undefined : speed,
      manufacturer: text(s, 23),
      serial: text(s, 24),
      partNumber: text(s, 26),
    }),
  ];
}

export function parseSmbios(table: Buffer): SmbiosFacts {
  const facts: { -readonly [K in keyof SmbiosFacts]: SmbiosFacts[K] } = { processors: [], dimms: [] };
  const processors: string[] = [];
  const dimms: Dimm[] = [];
  for (const s of structures(table)) {
    if (s.type === 0) facts.bios ??= given({ vendor: text(s, 4), version: text(s, 5), date: text(s, 8) });
    else if (s.type === 1 && facts.uuid === undefined && facts.vendor === undefined) {
      Object.assign(
        facts,
        given({
          vendor: text(s, 4),
          product: text(s, 5),
          version: text(s, 6),
          serial: text(s, 7),
          uuid: smbiosUuid(s.body.subarray(8, 24)),
          sku: text(s, 25),
          family: text(s, 26),
        }),
      );
    } else if (s.type === 2) facts.board ??= given({ vendor: text(s, 4), product: text(s, 5), serial: text(s, 7) });
    else if (s.type === 3) facts.chassis ??= given({ vendor: text(s, 4), serial: text(s, 7), assetTag: text(s, 8) });
    else if (s.type === 4) processors.push(text(s, 16) ?? 'unnamed');
    else if (s.type === 17) dimms.push(...dimm(s));
  }
  return { ...facts, processors, dimms: dimms.slice(0, 1024) };
}
