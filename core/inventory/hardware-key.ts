/**
 * Recognizes a machine across joins: SHA-256 over its normalized identifiers. Boards without a programmed identity
 * answer the same placeholders everywhere, so the key is trusted only when two independent kinds of identifier survive.
 * Untrusted keys never match anything: two such machines are two nodes.
 *
 * Independence: the MACs of a machine count as one kind (the ports of one card move together), and so do its GPUs. A
 * product UUID that firmware made from a MAC says nothing that the MAC does not, and counts as a MAC.
 */
import { sha256Hex } from '../kernel/canonical-json.ts';
import type { PartialSections } from './inventory.ts';

export interface HardwareIdentifiers {
  readonly productUuid?: string;
  readonly serial?: string;
  /** Permanent addresses of physical ports. */
  readonly macs: readonly string[];
  readonly gpuUuids: readonly string[];
}

export type IdentifierKind = 'uuid' | 'serial' | 'mac' | 'gpu';
export interface HardwareKey {
  /** Lower-case hex. Stands also when untrusted, for people to compare. */
  readonly key: string;
  readonly trusted: boolean;
  readonly used: readonly { readonly kind: IdentifierKind; readonly value: string }[];
  readonly rejected: readonly { readonly kind: IdentifierKind; readonly value: string; readonly why: string }[];
}

export const TRUSTED_KINDS_MIN = 2;

/** Texts that vendors leave where a serial number should be. Compared trimmed, case-folded, inner blanks collapsed. */
const PLACEHOLDERS = new Set([
  '',
  'to be filled by o.e.m.',
  'to be filled by oem',
  'default string',
  'default',
  'system serial number',
  'system product name',
  'system uuid',
  'base board serial number',
  'chassis serial number',
  'serial number',
  'product serial',
  'not specified',
  'not applicable',
  'not available',
  'not present',
  'not settable',
  'not set',
  'no asset tag',
  'empty',
  'invalid',
  'unknown',
  'undefined',
  'unspecified',
  'none',
  'null',
  'nil',
  'n/a',
  'na',
  'o.e.m.',
  'oem',
  'tbd',
  'test',
  'serial',
  '.',
  '1234',
  '12345',
  '123456',
  '1234567',
  '12345678',
  '123456789',
  '1234567890',
  '0123456789',
  '0123456789abcdef',
  '123456789abcdef',
  'abcdefghij',
  'sernum0',
  'empty serial',
  'insyde',
]);

/** UUIDs seen on many machines of many owners, in both byte orders where that matters. */
const SHARED_UUIDS = new Set([
  '03000200-0400-0500-0006-000700080009',
  '00020003-0004-0005-0006-000700080009',
  '00010002-0003-0004-0005-000600070008',
  '12345678-1234-5678-90ab-cddeefaabbcc',
  '78563412-3412-7856-90ab-cddeefaabbcc',
  '01234567-8910-1112-1314-151617181920',
  '11111111-2222-3333-4444-555555555555',
  'deadbeef-dead-beef-dead-beefdeadbeef',
]);

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Trimmed, case-folded, inner runs of white space made one blank. */
export function fold(value: string): string {
  return value.replace(/\0/g, '').trim().replace(/\s+/g, ' ').toLowerCase();
}

/** True for what vendors write in place of a value, whatever the field. Also for display: a reader drops such texts. */
export function isPlaceholder(value: string): boolean {
  const folded = fold(value);
  return PLACEHOLDERS.has(folded) || /^(.)\1*$/.test(folded.replace(/[\s.:_-]/g, '') || '.');
}

function foldUuid(value: string): string | undefined {
  const hex = fold(value)
    .replace(/^[{"']|[}"']$/g, '')
    .replace(/-/g, '');
  if (!/^[0-9a-f]{32}$/.test(hex)) return undefined;
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

function whyNotUuid(uuid: string): string | undefined {
  if (!UUID.test(uuid)) return 'not a UUID';
  if (/^[0-]+$/.test(uuid)) return 'all zero: not present';
  if (/^[f-]+$/.test(uuid)) return 'all ones: not set';
  if (/^(..)\1*$/.test(uuid.replaceAll('-', ''))) return 'one byte repeated';
  if (SHARED_UUIDS.has(uuid)) return 'a known placeholder';
  return undefined;
}

function whyNotMac(mac: string): string | undefined {
  if (!/^[0-9a-f]{12}$/.test(mac)) return 'not a MAC address';
  if (/^(..)\1*$/.test(mac)) return 'one byte repeated';
  if ((Number.parseInt(mac.slice(0, 2), 16) & 1) === 1) return 'a multicast address';
  return undefined;
}

export async function hardwareKey(ids: HardwareIdentifiers): Promise<HardwareKey> {
  const used: { kind: IdentifierKind; value: string }[] = [];
  const rejected: { kind: IdentifierKind; value: string; why: string }[] = [];
  const judge = (kind: IdentifierKind, value: string, why: string | undefined) => {
    if (why === undefined) used.push({ kind, value });
    else rejected.push({ kind, value: value.slice(0, 256), why });
  };

  for (const raw of ids.macs) {
    const mac = fold(raw).replace(/[:.-]/g, '');
    judge('mac', mac, whyNotMac(mac));
  }
  for (const raw of ids.gpuUuids) {
    const gpu = fold(raw);
    const uuid = foldUuid(gpu.replace(/^gpu-/, ''));
    judge('gpu', gpu, uuid === undefined ? 'not a GPU UUID' : whyNotUuid(uuid));
  }
  if (ids.serial !== undefined) {
    const serial = fold(ids.serial);
    judge('serial', serial, isPlaceholder(serial) ? 'a placeholder' : serial.length < 3 ? 'too short' : undefined);
  }
  if (ids.productUuid !== undefined) {
    const uuid = foldUuid(ids.productUuid) ?? fold(ids.productUuid);
    const why = whyNotUuid(uuid);
    const node = uuid.slice(24);
    // Zeros and a MAC, or any UUID whose node field is a port of this machine.
    const fromMac = why === undefined && (/^0{8}-0{4}-0{4}-0{4}-/.test(uuid) || used.some((u) => u.value === node));
    judge(fromMac ? 'mac' : 'uuid', fromMac ? node : uuid, fromMac ? whyNotMac(node) : why);
  }

  const lines = [...new Set(used.map((u) => `${u.kind}:${u.value}`))].sort();
  const kinds = new Set(used.map((u) => u.kind));
  return {
    key: sha256Hex(lines.join('\n')),
    trusted: kinds.size >= TRUSTED_KINDS_MIN,
    used: lines.map((line) => {
      const at = line.indexOf(':');
      return { kind: line.slice(0, at) as IdentifierKind, value: line.slice(at + 1) };
    }),
    rejected,
  };
}

/** The identifiers that an inventory holds. Ports on USB (a BMC's own network) and virtual functions are not the machine's. */
export function hardwareIdentifiers(sections: PartialSections): HardwareIdentifiers {
  const { system, nics, gpus } = sections;
  return {
    ...(system?.uuid === undefined ? {} : { productUuid: system.uuid }),
    ...(system?.serial === undefined ? {} : { serial: system.serial }),
    macs: (nics?.nics ?? [])
      .filter((n) => n.mac !== undefined && n.bus !== 'usb' && n.bus !== 'other' && n.physicalFunction === undefined)
      .map((n) => n.mac!),
    // A GPU of a virtual machine host's guest gets a new UUID with every start: it identifies nothing.
    gpuUuids: (gpus?.gpus ?? [])
      .filter((g) => g.uuid !== undefined && !/vgpu/i.test(g.virtualization ?? ''))
      .map((g) => g.uuid!),
  };
}
