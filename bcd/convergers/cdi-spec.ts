/**
 * One allocation as CDI specs (Container Device Interface, version 0.8.0): what a container runtime adds to a container
 * that asks for `bettercompute.dev/<class>=<device>`. A spec names exactly the booked devices and no "all".
 * Pure: the same allocation on the same hardware gives the same bytes, so that nothing is rewritten for nothing.
 */
import { type Disk, diskStableId, type Nic, type PartialSections } from '#core/inventory/index.ts';
import type { SpecAllocation } from '#core/nodes/spec.ts';

export const CDI_VERSION = '0.8.0';
export const CDI_VENDOR = 'bettercompute.dev';

export interface CdiEdits {
  readonly env?: readonly string[];
  readonly deviceNodes?: readonly { readonly path: string; readonly permissions?: string }[];
}
export interface CdiDevice {
  readonly name: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly containerEdits: CdiEdits;
}
export interface CdiSpec {
  readonly cdiVersion: string;
  readonly kind: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly devices: readonly CdiDevice[];
  readonly containerEdits?: CdiEdits;
}

export interface RenderedAllocation {
  /** File name -> text. One file, or one a class when the allocation mixes classes: a CDI spec has one kind. */
  readonly files: ReadonlyMap<string, string>;
  /** Booked devices that this machine cannot expose now. */
  readonly unresolved: readonly { readonly deviceId: string; readonly stableId: string; readonly why: string }[];
}

type SpecDevice = SpecAllocation['devices'][number];
type Found = { readonly edits: CdiEdits } | { readonly why: string };

const CDI_NAME = /^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$/;

/** The name under which a workload asks for the device: what the machine knows it by, where CDI can spell that. */
export function cdiDeviceName(device: SpecDevice): string {
  return CDI_NAME.test(device.stableId) ? device.stableId : device.id;
}

/** The driver's control nodes, which every NVIDIA GPU needs beside its own. */
const NVIDIA_SHARED: CdiEdits = { deviceNodes: [{ path: '/dev/nvidiactl' }, { path: '/dev/nvidia-uvm' }] };

function findGpu(sections: PartialSections, stableId: string): Found {
  const gpu = sections.gpus?.gpus.find((g) => g.uuid === stableId);
  if (gpu === undefined) return { why: 'the GPU is not in the inventory' };
  if (gpu.minor === undefined) return { why: 'the driver names no device node for the GPU' };
  return { edits: { deviceNodes: [{ path: `/dev/nvidia${gpu.minor}` }], env: [`NVIDIA_VISIBLE_DEVICES=${stableId}`] } };
}

/** The kernel's own node: runtimes do not follow the links of /dev/disk/by-id. A reboot may rename it; we then rewrite. */
function findDisk(sections: PartialSections, stableId: string): Found {
  const disks: Disk[] = (sections.disks?.disks ?? []).filter((d) => diskStableId(d) === stableId);
  if (disks.length !== 1)
    return { why: disks.length === 0 ? 'the disk is not in the inventory' : 'several disks have this identity' };
  const disk = disks[0]!;
  if (disk.usedBy.length > 0) return { why: `the host uses the disk: ${disk.usedBy[0]}` };
  return { edits: { deviceNodes: [{ path: disk.path, permissions: 'rw' }], env: [`BETTERCOMPUTE_DISK=${disk.path}`] } };
}

function findNic(sections: PartialSections, stableId: string): Found {
  const nic: Nic | undefined = sections.nics?.nics.find((n) => n.mac === stableId && n.physicalFunction !== undefined);
  if (nic?.pciAddress === undefined) return { why: 'the virtual function is not in the inventory' };
  return { edits: { env: [`BETTERCOMPUTE_NIC_PCI=${nic.pciAddress}`] } };
}

function find(sections: PartialSections, device: SpecDevice): Found {
  switch (device.class) {
    case 'gpu':
      return findGpu(sections, device.stableId);
    case 'disk':
      return findDisk(sections, device.stableId);
    case 'nic.vf':
      return findNic(sections, device.stableId);
    case 'node':
      return { edits: { env: ['BETTERCOMPUTE_NODE=whole'] } };
    default:
      return { why: `devices of class ${device.class} cannot be exposed by this version` };
  }
}

function fileName(allocationId: string, deviceClass: string, only: boolean): string {
  return only ? `bettercompute-${allocationId}.json` : `bettercompute-${allocationId}.${deviceClass}.json`;
}

/** True for the files of this allocation, whatever classes it has. */
export function belongsTo(name: string, allocationId: string): boolean {
  return name === `bettercompute-${allocationId}.json` || name.startsWith(`bettercompute-${allocationId}.`);
}

/** The device ids that a file of ours names; undefined when it is not readable as one. */
export function bookedIn(text: string): readonly string[] | undefined {
  try {
    const spec = JSON.parse(text) as { devices?: { annotations?: Record<string, unknown> }[] };
    const ids = spec.devices?.map((d) => d.annotations?.[`${CDI_VENDOR}/device-id`]);
    return ids?.every((id): id is string => typeof id === 'string') ? ids : undefined;
  } catch {
    return undefined;
  }
}

export function renderAllocation(allocation: SpecAllocation, sections: PartialSections): RenderedAllocation {
  const unresolved: { deviceId: string; stableId: string; why: string }[] = [];
  const byClass = new Map<string, CdiDevice[]>();
  for (const device of allocation.devices) {
    const found = find(sections, device);
    if ('why' in found) {
      unresolved.push({ deviceId: device.id, stableId: device.stableId, why: found.why });
      continue;
    }
    const list = byClass.get(device.class) ?? [];
    byClass.set(device.class, list);
    list.push({
      name: cdiDeviceName(device),
      annotations: { [`${CDI_VENDOR}/device-id`]: device.id, [`${CDI_VENDOR}/stable-id`]: device.stableId },
      containerEdits: found.edits,
    });
  }
  const files = new Map<string, string>();
  const classes = [...byClass.keys()].sort();
  for (const deviceClass of classes) {
    const spec: CdiSpec = {
      cdiVersion: CDI_VERSION,
      kind: `${CDI_VENDOR}/${deviceClass}`,
      annotations: {
        [`${CDI_VENDOR}/allocation`]: allocation.allocationId,
        [`${CDI_VENDOR}/reservation`]: allocation.reservationId,
        [`${CDI_VENDOR}/tenant`]: allocation.tenantId,
      },
      devices: byClass.get(deviceClass)!.sort((a, b) => (a.name < b.name ? -1 : 1)),
      ...(deviceClass === 'gpu' ? { containerEdits: NVIDIA_SHARED } : {}),
    };
    files.set(
      fileName(allocation.allocationId, deviceClass, classes.length === 1),
      `${JSON.stringify(spec, null, 2)}\n`,
    );
  }
  return { files, unresolved };
}
