/**
 * `nvidia-smi -q -x` as a gpus section. One bad card must not hide the others: a value that is a word (`N/A`, `ERR!`,
 * `GPU is lost`) is absent, and the words that mean trouble are kept as such. The document names a DTD; it is cut off
 * unread, a document with a DTD inside is refused, and entities are not expanded.
 */
import { XMLParser } from 'fast-xml-parser';
import type { Gpu, GpusSection, MigDevice, MigState } from '#core/inventory/inventory.ts';
import { clean, given, pciAddress, present, sizeInBytes, UnreadableSource, whole } from './source.ts';

const SOURCE = 'nvidia-smi -q -x';
const DOCUMENT_CHARS_MAX = 16 * 1024 * 1024;

const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: '@',
  parseTagValue: false,
  parseAttributeValue: false,
  processEntities: false,
  trimValues: true,
  isArray: (name) => name === 'gpu' || name === 'mig_device',
});

type Node = { readonly [name: string]: unknown };
const isNode = (v: unknown): v is Node => typeof v === 'object' && v !== null && !Array.isArray(v);

/** The text at a path of element names. */
function at(node: unknown, ...path: string[]): string | undefined {
  let here: unknown = node;
  for (const name of path) {
    if (!isNode(here) || !Object.hasOwn(here, name)) return undefined;
    here = here[name];
  }
  return typeof here === 'string' ? here : undefined;
}

function children(node: unknown, name: string): unknown[] {
  if (!isNode(node) || !Object.hasOwn(node, name)) return [];
  const found = node[name];
  return Array.isArray(found) ? found : [found];
}

function parseXml(xml: string): Node {
  if (xml.length > DOCUMENT_CHARS_MAX) throw new UnreadableSource(SOURCE, 'the document is too large');
  const doctype = /<!DOCTYPE[^>[]*(\[|>)/i.exec(xml);
  if (doctype?.[1] === '[') throw new UnreadableSource(SOURCE, 'the document brings a DTD of its own');
  const body = doctype === null ? xml : xml.replace(doctype[0], '');
  if (/<!(DOCTYPE|ENTITY)/i.test(body)) throw new UnreadableSource(SOURCE, 'the document declares entities');
  try {
    const root = (parser.parse(body, true) as Node)['nvidia_smi_log'];
    if (isNode(root)) return root;
  } catch (error) {
    throw new UnreadableSource(SOURCE, error instanceof Error ? clean(error.message)! : 'not XML');
  }
  throw new UnreadableSource(SOURCE, 'there is no nvidia_smi_log in it');
}

const LOST = /^GPU is lost$/i;
const TROUBLE = /(^|\W)(ERR!|Unknown Error|GPU requires reset|fallen off the bus)/i;

/** Every distinct word of trouble in a block, with the element that said it. */
function* troubles(node: unknown, name: string): Generator<{ name: string; text: string }> {
  if (typeof node === 'string') {
    if (LOST.test(node) || TROUBLE.test(node)) yield { name, text: node };
  } else if (Array.isArray(node)) {
    for (const item of node) yield* troubles(item, name);
  } else if (isNode(node)) {
    for (const [key, value] of Object.entries(node)) {
      // A process may be called anything.
      if (key !== 'processes' && key !== 'accounted_processes') yield* troubles(value, key);
    }
  }
}

function migState(text: string | undefined): MigState {
  const word = text?.trim().toLowerCase();
  return word === 'enabled' || word === 'disabled' ? word : 'unsupported';
}

function migDevice(node: unknown): MigDevice[] {
  const [index, gpuInstance, computeInstance] = ['index', 'gpu_instance_id', 'compute_instance_id'].map((name) =>
    whole(at(node, name)),
  );
  if (index === undefined || gpuInstance === undefined || computeInstance === undefined) return [];
  return [
    given({
      index,
      gpuInstance,
      computeInstance,
      uuid: present(at(node, 'uuid')),
      memoryBytes: sizeInBytes(at(node, 'fb_memory_usage', 'total')),
    }),
  ];
}

function readGpu(node: unknown, index: number): Gpu {
  const found = [...troubles(node, 'gpu')];
  const lost = found.some((t) => LOST.test(t.text));
  const trouble = new Set(found.filter((t) => !LOST.test(t.text)).map((t) => clean(`${t.name}: ${t.text}`)!));
  const recovery = present(at(node, 'gpu_recovery_action'));
  if (recovery !== undefined && !LOST.test(recovery)) trouble.add(`recovery action: ${recovery}`);
  if (/^yes$/i.test(at(node, 'remapped_rows', 'remapped_row_failure') ?? '')) trouble.add('row remapping failed');
  const identity = (...path: string[]) => {
    const text = present(at(node, ...path));
    return text === undefined || LOST.test(text) || TROUBLE.test(text) ? undefined : text;
  };
  const ecc = at(node, 'ecc_mode', 'current_ecc')?.toLowerCase();
  const fabric = given({
    clusterUuid: identity('fabric', 'clusterUuid'),
    cliqueId: identity('fabric', 'cliqueId'),
    state: identity('fabric', 'state'),
  });
  return given({
    index,
    uuid: identity('uuid'),
    serial: identity('serial'),
    product: identity('product_name'),
    brand: identity('product_brand'),
    architecture: identity('product_architecture'),
    pciAddress: pciAddress(identity('pci', 'pci_bus_id') ?? at(node, '@id')),
    minor: whole(at(node, 'minor_number')),
    vbios: identity('vbios_version'),
    memoryBytes: sizeInBytes(at(node, 'fb_memory_usage', 'total')),
    mig: {
      current: migState(at(node, 'mig_mode', 'current_mig')),
      pending: migState(at(node, 'mig_mode', 'pending_mig')),
      devices: children(isNode(node) ? node['mig_devices'] : undefined, 'mig_device')
        .flatMap(migDevice)
        .slice(0, 64),
    },
    ecc: ecc === 'enabled' ? true : ecc === 'disabled' ? false : undefined,
    fabric: Object.keys(fabric).length === 0 ? undefined : fabric,
    virtualization: identity('gpu_virtualization_mode', 'virtualization_mode'),
    license: identity('vgpu_software_licensed_product', 'license_status'),
    lost,
    trouble: [...trouble].slice(0, 32),
  });
}

/** Throws UnreadableSource. The section is `partial` when the header counts other than the blocks, or a block has no UUID. */
export function parseNvidiaSmi(xml: string): GpusSection {
  const log = parseXml(xml);
  const gpus = children(log, 'gpu').slice(0, 256).map(readGpu);
  const attached = whole(at(log, 'attached_gpus'));
  const problems: string[] = [];
  if (attached === undefined) problems.push('the number of attached GPUs is missing');
  else if (attached !== gpus.length) problems.push(`${attached} GPUs attached, ${gpus.length} described`);
  for (const g of gpus) {
    const name = g.uuid ?? g.pciAddress ?? `index ${g.index}`;
    if (g.uuid === undefined) problems.push(`GPU ${name} has no UUID`);
    if (g.lost) problems.push(`GPU ${name} is lost`);
  }
  return given({
    status: problems.length === 0 ? 'ok' : 'partial',
    problems: problems.slice(0, 32),
    driverVersion: present(at(log, 'driver_version')),
    cudaVersion: present(at(log, 'cuda_version')),
    attached,
    gpus,
    links: [],
    xids: [],
  } satisfies GpusSection);
}

/** `nvidia-smi -L`: the only listing that names the UUIDs of MIG instances. GPU UUID -> instances in order. */
export function parseGpuList(text: string): ReadonlyMap<string, readonly { profile: string; uuid: string }[]> {
  const found = new Map<string, { profile: string; uuid: string }[]>();
  let instances: { profile: string; uuid: string }[] | undefined;
  for (const line of text.slice(0, 1_000_000).split('\n')) {
    const gpu = /^GPU \d+: .*\(UUID: (GPU-[0-9A-Fa-f-]{8,64})\)\s*$/.exec(line);
    if (gpu !== null) {
      instances = [];
      found.set(gpu[1]!, instances);
      continue;
    }
    const mig = /^\s+MIG (\S{1,32})\s+Device\s+\d+:\s+\(UUID: (MIG-[0-9A-Za-z/-]{1,128})\)\s*$/.exec(line);
    if (mig !== null) instances?.push({ profile: mig[1]!, uuid: mig[2]! });
  }
  return found;
}

/** Gives MIG instances the names of the list, where both agree on how many there are. */
export function nameMigInstances(section: GpusSection, list: ReturnType<typeof parseGpuList>): GpusSection {
  const gpus = section.gpus.map((g): Gpu => {
    const names = g.uuid === undefined ? undefined : list.get(g.uuid);
    if (names === undefined || names.length !== g.mig.devices.length) return g;
    const inOrder = [...g.mig.devices].sort((a, b) => a.index - b.index);
    const devices = inOrder.map((d, i) => ({
      ...d,
      uuid: d.uuid ?? names[i]!.uuid,
      profile: d.profile ?? names[i]!.profile,
    }));
    return { ...g, mig: { ...g.mig, devices } };
  });
  return { ...section, gpus };
}
