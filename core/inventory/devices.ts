/**
 * From an inventory to devices. Rules:
 *  - only what has an identity of its own (GPU UUID, WWN or serial, MAC) becomes a device; kernel names do not;
 *  - health is shown, never assumed: a section that was not read makes its devices `unknown`, which nobody may book;
 *  - a GPU in MIG mode, or about to change its mode, is never a whole-GPU atom;
 *  - a disk that the host itself uses is never an atom;
 *  - a device that an inventory does not show any more stays, marked as gone: only an operator removes one.
 */
import type { AttributeValue } from '../placement/selectors.ts';
import type { GpuFault } from './gpu-faults.ts';
import { gpuFormFactor, gpuModel } from './gpu-models.ts';
import type { PartialSections } from './inventory.ts';
import type { Disk, Gpu, Nic } from './sections.ts';

export type DeviceClass = 'gpu' | 'gpu.mig' | 'disk' | 'nic.vf' | 'node';
export type DeviceHealth = 'healthy' | 'unhealthy' | 'unknown';

export interface Device {
  readonly class: DeviceClass;
  readonly stableId: string;
  /** Order on the node, for people and for picking neighbours. */
  readonly slot: number;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly bookable: boolean;
  readonly health: DeviceHealth;
  readonly healthReason?: string;
  /** Shown by the last inventory. */
  readonly present: boolean;
}

/** Attribute -> type. Quantities are numbers of the base unit (bytes, Hz); versions are dotted numbers in a text. */
export const ATTRIBUTES = {
  model: 'string',
  product: 'string',
  architecture: 'string',
  formFactor: 'string',
  memory: 'quantity',
  driver: 'version',
  cuda: 'version',
  pciAddress: 'string',
  numaNode: 'int',
  ecc: 'bool',
  'fabric.domain': 'string',
  'fabric.clique': 'string',
  parent: 'string',
  profile: 'string',
  gpuInstance: 'int',
  computeInstance: 'int',
  size: 'quantity',
  rotational: 'bool',
  transport: 'string',
  serial: 'string',
  speedMbps: 'int',
  vendor: 'string',
  cpuModel: 'string',
  cpuCores: 'int',
  cpuThreads: 'int',
  gpuModel: 'string',
  gpuCount: 'int',
} as const satisfies Record<string, 'string' | 'int' | 'version' | 'bool' | 'quantity'>;
export type AttributeName = keyof typeof ATTRIBUTES;

/** A class that `metal-dedicated` pools rent whole: there the node is the one atom and its parts are not. */
export type PoolClass = 'metal-host' | 'metal-dedicated' | 'vps-host' | 'provider';

export const NODE_STABLE_ID = 'node';

type Given = { readonly [N in AttributeName]?: AttributeValue | undefined };
function attributes(given: Given): Record<string, AttributeValue> {
  return Object.fromEntries(Object.entries(given).filter(([, v]) => v !== undefined)) as Record<string, AttributeValue>;
}

interface Verdict {
  readonly health: DeviceHealth;
  readonly healthReason?: string;
}
const HEALTHY: Verdict = { health: 'healthy' };
const verdict = (health: DeviceHealth, healthReason: string): Verdict => ({ health, healthReason });

/** Undefined when the section was read. */
function unread(section: { status: string; problems: readonly string[] } | undefined): Verdict | undefined {
  if (section === undefined) return verdict('unknown', 'never read');
  if (section.status === 'ok' || section.status === 'partial') return undefined;
  return verdict('unknown', `not read: ${section.problems[0] ?? section.status}`);
}

function gpuHealth(g: Gpu, faults: readonly GpuFault[]): Verdict {
  if (g.lost) return verdict('unhealthy', 'the driver says that the GPU is lost');
  const fault = faults.find((f) => f.stableId === g.uuid);
  if (fault !== undefined) return verdict('unhealthy', `XID ${fault.code}: ${fault.doc}`);
  if (g.trouble.length > 0) return verdict('unhealthy', g.trouble[0]!);
  if (g.license !== undefined && /^unlicensed/i.test(g.license)) return verdict('unhealthy', `vGPU: ${g.license}`);
  return HEALTHY;
}

/** In MIG mode, or on the way in or out of it. */
export function partitioned(g: Gpu): boolean {
  return g.mig.current === 'enabled' || g.mig.pending === 'enabled';
}

function gpuDevices(sections: PartialSections, faults: readonly GpuFault[]): Device[] {
  const section = sections.gpus;
  if (section === undefined) return [];
  const missing = unread(section);
  const out: Device[] = [];
  for (const g of section.gpus) {
    if (g.uuid === undefined) continue;
    const health = missing ?? gpuHealth(g, faults);
    const common: Given = {
      model: g.product === undefined ? undefined : gpuModel(g.product),
      product: g.product,
      architecture: g.architecture?.toLowerCase(),
      driver: section.driverVersion,
      cuda: section.cudaVersion,
      pciAddress: g.pciAddress,
      numaNode: g.numaNode,
      ecc: g.ecc,
    };
    const fabric = g.fabric?.clusterUuid;
    out.push({
      class: 'gpu',
      stableId: g.uuid,
      slot: g.index,
      attributes: attributes({
        ...common,
        formFactor: g.product === undefined ? undefined : gpuFormFactor(g.product),
        memory: g.memoryBytes,
        // All zero: not in a fabric that reaches past this machine.
        'fabric.domain': fabric === undefined || /^[0-]*$/.test(fabric) ? undefined : fabric,
        'fabric.clique': fabric === undefined || /^[0-]*$/.test(fabric) ? undefined : g.fabric?.cliqueId,
      }),
      bookable: !partitioned(g),
      present: true,
      ...health,
    });
    if (g.mig.current !== 'enabled') continue;
    for (const m of g.mig.devices) {
      // Without a UUID nothing could name it to a workload; the parent carries a condition.
      if (m.uuid === undefined) continue;
      out.push({
        class: 'gpu.mig',
        stableId: m.uuid,
        slot: g.index * 64 + m.index,
        attributes: attributes({
          ...common,
          parent: g.uuid,
          profile: m.profile,
          memory: m.memoryBytes,
          gpuInstance: m.gpuInstance,
          computeInstance: m.computeInstance,
        }),
        bookable: true,
        present: true,
        ...health,
      });
    }
  }
  return out;
}

/** What survives reboots and cable swaps; undefined when the disk has nothing of the kind. */
export function diskStableId(d: Disk): string | undefined {
  if (d.wwn !== undefined) return d.wwn;
  if (d.serial !== undefined) return `serial:${d.serial}`;
  return undefined;
}

function diskDevices(sections: PartialSections): Device[] {
  const missing = unread(sections.disks);
  return (sections.disks?.disks ?? []).flatMap((d, slot): Device[] => {
    const stableId = diskStableId(d);
    if (stableId === undefined || d.removable === true || d.transport === 'usb' || !d.sizeBytes) return [];
    return [
      {
        class: 'disk',
        stableId,
        slot,
        attributes: attributes({
          product: d.model,
          serial: d.serial,
          size: d.sizeBytes,
          rotational: d.rotational,
          transport: d.transport,
          pciAddress: d.pciAddress,
          numaNode: d.numaNode,
        }),
        bookable: d.usedBy.length === 0,
        present: true,
        ...(missing ?? HEALTHY),
      },
    ];
  });
}

function nicDevices(sections: PartialSections): Device[] {
  const missing = unread(sections.nics);
  return (sections.nics?.nics ?? []).flatMap((n: Nic, slot): Device[] => {
    if (n.physicalFunction === undefined || n.mac === undefined || n.mac === '00:00:00:00:00:00') return [];
    return [
      {
        class: 'nic.vf',
        stableId: n.mac,
        slot,
        attributes: attributes({
          parent: n.physicalFunction,
          driver: undefined,
          speedMbps: n.speedMbps,
          pciAddress: n.pciAddress,
          numaNode: n.numaNode,
        }),
        bookable: true,
        present: true,
        ...(missing ?? HEALTHY),
      },
    ];
  });
}

function nodeDevice(sections: PartialSections, parts: readonly Device[]): Device {
  const { system, cpu, memory } = sections;
  const gpus = parts.filter((d) => d.class === 'gpu');
  const bad = gpus.find((d) => d.health !== 'healthy');
  const models = new Set(gpus.map((g) => g.attributes['model']).filter((m) => m !== undefined));
  return {
    class: 'node',
    stableId: NODE_STABLE_ID,
    slot: 0,
    attributes: attributes({
      vendor: system?.vendor,
      product: system?.product,
      cpuModel: cpu?.model,
      cpuCores: cpu?.cores,
      cpuThreads: cpu?.threads,
      memory: memory?.totalBytes,
      gpuCount: gpus.length,
      gpuModel: models.size === 1 ? [...models][0] : undefined,
    }),
    bookable: true,
    present: true,
    ...(bad === undefined ? HEALTHY : verdict(bad.health, `GPU ${bad.stableId}: ${bad.healthReason ?? bad.health}`)),
  };
}

export interface DeviceContext {
  readonly poolClass: PoolClass;
  readonly faults: readonly GpuFault[];
}

/** The devices that an inventory shows. No two have the same class and stable id. */
export function devicesOf(sections: PartialSections, context: DeviceContext): Device[] {
  const parts = [...gpuDevices(sections, context.faults), ...diskDevices(sections), ...nicDevices(sections)];
  const whole = context.poolClass === 'metal-dedicated';
  const all = [
    ...parts.map((d) => (whole ? { ...d, bookable: false } : d)),
    { ...nodeDevice(sections, parts), bookable: whole },
  ];
  const byId = new Map<string, Device>();
  for (const d of all) {
    const key = `${d.class} ${d.stableId}`;
    const twin = byId.get(key);
    // Two things under one name: nobody can say which of them a booking would mean.
    byId.set(key, twin === undefined ? d : { ...twin, bookable: false, ...verdict('unknown', AMBIGUOUS) });
  }
  return [...byId.values()];
}

export const AMBIGUOUS = 'several devices of this machine answer with this identity';

/**
 * Lays what was seen over what is known. A known device that is not shown stays as gone; a MIG instance that is gone
 * also stops being an atom, since its layout may come back under another identity and size.
 */
export function keepKnown(known: readonly Device[], seen: readonly Device[]): Device[] {
  const shown = new Set(seen.map((d) => `${d.class} ${d.stableId}`));
  const gone = known
    .filter((d) => !shown.has(`${d.class} ${d.stableId}`))
    .map(
      (d): Device => ({
        ...d,
        present: false,
        bookable: d.class === 'gpu.mig' ? false : d.bookable,
        ...verdict('unhealthy', 'not in the last inventory'),
      }),
    );
  return [...seen, ...gone];
}
