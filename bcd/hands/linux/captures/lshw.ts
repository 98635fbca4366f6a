/**
 * `lshw -json`, for documents that other tools captured. Versions differ: the root may be the object, a list of one, or
 * wrapped in a member; `logicalname` may be a text or a list.
 */
import { isPlaceholder } from '#core/inventory/hardware-key.ts';
import type { Dimm } from '#core/inventory/inventory.ts';
import { clean, given, macAddress, UnreadableSource } from '../source.ts';

export interface LshwFacts {
  readonly vendor?: string;
  readonly product?: string;
  readonly serial?: string;
  readonly uuid?: string;
  readonly cpus: readonly { readonly product?: string; readonly cores?: number; readonly threads?: number }[];
  readonly memoryBytes?: number;
  readonly dimms: readonly Dimm[];
  readonly disks: readonly {
    readonly name: string;
    readonly product?: string;
    readonly serial?: string;
    readonly sizeBytes?: number;
  }[];
  readonly nics: readonly { readonly name: string; readonly mac?: string; readonly businfo?: string }[];
}

type Node = Readonly<Record<string, unknown>>;
const isNode = (v: unknown): v is Node => typeof v === 'object' && v !== null && !Array.isArray(v);
const text = (v: unknown) => (typeof v === 'string' ? clean(v) : undefined);
const count = (v: unknown) => {
  const n = typeof v === 'string' && /^\d{1,9}$/.test(v) ? Number(v) : v;
  return typeof n === 'number' && Number.isSafeInteger(n) && n >= 0 ? n : undefined;
};
const stated = (v: unknown) => {
  const value = text(v);
  return value === undefined || isPlaceholder(value) || /^no dimm$/i.test(value) ? undefined : value;
};

const NODES_MAX = 20_000;
const DEPTH_MAX = 32;

function flatten(root: Node): Node[] {
  const found: Node[] = [];
  const walk = (node: Node, depth: number) => {
    if (found.length >= NODES_MAX || depth > DEPTH_MAX) return;
    found.push(node);
    const children = Array.isArray(node['children']) ? node['children'] : [];
    for (const child of children) if (isNode(child)) walk(child, depth + 1);
  };
  walk(root, 0);
  return found;
}

function root(document: unknown): Node | undefined {
  const inner = isNode(document) && 'lshw' in document ? document['lshw'] : document;
  const one: unknown = Array.isArray(inner) ? inner[0] : inner;
  return isNode(one) && typeof one['class'] === 'string' ? one : undefined;
}

const logicalNames = (node: Node) =>
  [node['logicalname']]
    .flat()
    .map(text)
    .filter((n) => n !== undefined);

/** Throws UnreadableSource. */
export function parseLshw(json: string): LshwFacts {
  let document: unknown;
  try {
    document = JSON.parse(json);
  } catch {
    throw new UnreadableSource('lshw', 'not JSON');
  }
  const top = root(document);
  if (top === undefined) throw new UnreadableSource('lshw', 'there is no machine in it');
  const all = flatten(top);
  const of = (kind: string) => all.filter((n) => n['class'] === kind);
  const configuration = (n: Node, key: string) => (isNode(n['configuration']) ? n['configuration'][key] : undefined);
  const memory = of('memory');
  const banks = memory.filter((n) => /^bank(:|$)/.test(String(n['id'])) && count(n['size']) !== undefined);
  const dimms = banks.map((n): Dimm => {
    const clock = count(n['clock']);
    return given({
      locator: text(n['slot']),
      sizeBytes: count(n['size']),
      speedMts: clock === undefined ? undefined : Math.round(clock / 1e6),
      manufacturer: stated(n['vendor']),
      serial: stated(n['serial']),
      partNumber: stated(n['product']),
    });
  });
  const whole = memory.filter((n) => /^memory(:\d+)?$/.test(String(n['id']))).map((n) => count(n['size']) ?? 0);
  const total = whole.reduce((a, b) => a + b, 0) || dimms.reduce((a, d) => a + (d.sizeBytes ?? 0), 0);
  return given({
    vendor: stated(top['vendor']),
    product: stated(top['product']),
    serial: stated(top['serial']),
    uuid: text(configuration(top, 'uuid'))?.toLowerCase(),
    cpus: of('processor').map((n) =>
      given({
        product: stated(n['product']),
        cores: count(configuration(n, 'cores')),
        threads: count(configuration(n, 'threads')),
      }),
    ),
    memoryBytes: total === 0 ? undefined : total,
    dimms,
    disks: of('disk').flatMap((n) => {
      const name = logicalNames(n).find((l) => l.startsWith('/dev/'));
      const sizeBytes = count(n['size']);
      // Drives without a medium have no size: virtual media of a BMC, card readers.
      if (name === undefined || sizeBytes === undefined) return [];
      return [given({ name, product: stated(n['product']), serial: stated(n['serial']), sizeBytes })];
    }),
    nics: of('network').flatMap((n) => {
      const name = logicalNames(n)[0];
      return name === undefined
        ? []
        : [given({ name, mac: macAddress(text(n['serial'])), businfo: text(n['businfo']) })];
    }),
  });
}
