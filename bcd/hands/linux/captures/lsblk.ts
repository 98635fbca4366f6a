/**
 * `lsblk -J -b` as disks. For documents that other tools captured; the daemon itself reads sysfs. A size may come as a
 * number or as text; one with a comma or a unit is no number and is left out.
 */
import { isPlaceholder } from '#core/inventory/hardware-key.ts';
import type { Disk } from '#core/inventory/inventory.ts';
import { clean, decimal, given, UnreadableSource } from '../source.ts';

type Row = Readonly<Record<string, unknown>>;
const text = (v: unknown) => (typeof v === 'string' ? clean(v) : undefined);
const flag = (v: unknown) =>
  typeof v === 'boolean' ? v : v === '1' || v === 1 ? true : v === '0' || v === 0 ? false : undefined;

function size(v: unknown): number | undefined {
  if (typeof v === 'number') return Number.isSafeInteger(v) && v >= 0 ? v : undefined;
  return typeof v === 'string' ? decimal(v.trim()) : undefined;
}

function identity(v: unknown): string | undefined {
  const value = text(v);
  return value === undefined || isPlaceholder(value) ? undefined : value;
}

/** Made by the kernel or read-only media: named `disk` by some versions of the tool all the same. */
const NO_DISK = /^(loop|ram|zram|fd|sr|dm-|md|nbd)\d*/;

const KERNEL_NAME = /^[A-Za-z0-9!_.-]{1,64}$/;

const TRANSPORTS: readonly string[] = ['nvme', 'sata', 'sas', 'usb', 'virtio'];

/** Throws UnreadableSource. */
export function parseLsblk(json: string): Disk[] {
  let document: unknown;
  try {
    document = JSON.parse(json);
  } catch {
    throw new UnreadableSource('lsblk', 'not JSON');
  }
  const rows = (document as { blockdevices?: unknown } | null)?.blockdevices;
  if (!Array.isArray(rows)) throw new UnreadableSource('lsblk', 'there is no list "blockdevices"');
  return rows
    .slice(0, 4096)
    .flatMap((row): Disk[] => (typeof row === 'object' && row !== null ? disk(row as Row) : []));
}

function disk(row: Row): Disk[] {
  const name = (text(row['kname']) ?? text(row['name']))?.replace(/^\/dev\//, '');
  const type = text(row['type']);
  if (name === undefined || !KERNEL_NAME.test(name) || NO_DISK.test(name) || (type !== undefined && type !== 'disk'))
    return [];
  const sizeBytes = size(row['size']);
  // An empty drive (a BMC's virtual floppy).
  if (sizeBytes === 0) return [];
  const tran = text(row['tran']);
  return [
    given({
      name,
      path: `/dev/${name}`,
      sizeBytes,
      logicalBlockBytes: size(row['log-sec']),
      rotational: flag(row['rota']),
      removable: flag(row['rm']),
      model: text(row['model']),
      serial: identity(row['serial']),
      wwn: identity(row['wwn']),
      transport: tran === undefined ? undefined : ((TRANSPORTS.includes(tran) ? tran : 'other') as Disk['transport']),
      usedBy: [...new Set(mountPoints(row, 0))].slice(0, 64),
    }),
  ];
}

function mountPoints(row: Row, depth: number): string[] {
  const many = Array.isArray(row['mountpoints']) ? row['mountpoints'] : [];
  const own = [row['mountpoint'], ...many].map(text).filter((m) => m !== undefined);
  if (depth > 8 || !Array.isArray(row['children'])) return own;
  return [
    ...own,
    ...row['children'].flatMap((c: unknown) =>
      typeof c === 'object' && c !== null ? mountPoints(c as Row, depth + 1) : [],
    ),
  ];
}
