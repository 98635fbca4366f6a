/** The text of `dmidecode`, for documents that other tools captured; the daemon reads the table itself (smbios.ts). */
import type { Dimm } from '#core/inventory/inventory.ts';
import type { SmbiosFacts } from '../smbios.ts';
import { clean, decimal, given, sizeInBytes, UnreadableSource } from '../source.ts';

type Fields = ReadonlyMap<string, string>;

/** Throws UnreadableSource when there is no structure in the text. */
export function parseDmidecode(text: string): SmbiosFacts {
  const structures: { type: number; fields: Fields }[] = [];
  for (const block of text.slice(0, 4_000_000).split(/\n(?=Handle 0x)/)) {
    const head = /^Handle 0x[0-9A-F]{4}, DMI type (\d{1,3}), \d+ bytes/m.exec(block);
    if (head === null) continue;
    const fields = new Map<string, string>();
    for (const line of block.split('\n')) {
      const field = /^\t([A-Za-z][^:\t]{0,60}):\s(.*)$/.exec(line);
      const value = clean(field?.[2]);
      if (field !== null && value !== undefined) fields.set(field[1]!, value);
    }
    structures.push({ type: Number(head[1]), fields });
  }
  if (structures.length === 0) throw new UnreadableSource('dmidecode', 'there is no structure in it');
  const first = (type: number): Fields => structures.find((s) => s.type === type)?.fields ?? new Map();
  const [bios, system, board, chassis] = [first(0), first(1), first(2), first(3)];
  return given({
    bios: given({ vendor: bios.get('Vendor'), version: bios.get('Version'), date: bios.get('Release Date') }),
    vendor: system.get('Manufacturer'),
    product: system.get('Product Name'),
    version: system.get('Version'),
    serial: system.get('Serial Number'),
    uuid: system.get('UUID')?.toLowerCase(),
    sku: system.get('SKU Number'),
    family: system.get('Family'),
    board: given({
      vendor: board.get('Manufacturer'),
      product: board.get('Product Name'),
      serial: board.get('Serial Number'),
    }),
    chassis: given({
      vendor: chassis.get('Manufacturer'),
      serial: chassis.get('Serial Number'),
      assetTag: chassis.get('Asset Tag'),
    }),
    processors: structures.filter((s) => s.type === 4).map((s) => s.fields.get('Version') ?? 'unnamed'),
    dimms: structures.filter((s) => s.type === 17).flatMap((s) => dimm(s.fields)),
  });
}

function dimm(fields: Fields): Dimm[] {
  const sizeBytes = sizeInBytes(fields.get('Size'));
  if (sizeBytes === undefined) return [];
  return [
    given({
      locator: fields.get('Locator'),
      bank: fields.get('Bank Locator'),
      sizeBytes,
      type: fields.get('Type'),
      speedMts: decimal(/^(\d+) M(?:T\/s|Hz)$/.exec(fields.get('Speed') ?? '')?.[1]),
      manufacturer: fields.get('Manufacturer'),
      serial: fields.get('Serial Number'),
      partNumber: fields.get('Part Number'),
    }),
  ];
}
