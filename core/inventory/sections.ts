/**
 * The sections of `NodeInventory v1`: hardware facts as a daemon reads them. Rules that every reader keeps:
 * a value that could not be read is absent, never 0 or an empty text; sizes are bytes; nothing that changes by itself
 * (temperatures, free memory, clocks in use) is in here, so that a hash moves only when the hardware did.
 */
import { z } from 'zod';

/** Vendor text: trimmed by the reader, bounded here. */
const text = z.string().min(1).max(256);
const bytes = z.number().int().nonnegative();
const count = z.number().int().nonnegative().max(1_000_000);
/** -1 in sysfs means "no NUMA node"; readers leave it out. */
const numaNode = z.number().int().nonnegative().max(65_535);
const pciAddress = z.string().regex(/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/);
const mac = z.string().regex(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/);

/**
 * How well a section was read. `ok`: complete. `partial`: what stands here is true, something is missing.
 * `failed`: the source answered nonsense or nothing, so the section says nothing about the hardware.
 * `absent`: there is no such source on this machine (no NVIDIA driver, no SMBIOS).
 */
export const sectionStatus = z.enum(['ok', 'partial', 'failed', 'absent']);
export type SectionStatus = z.infer<typeof sectionStatus>;

const reading = { status: sectionStatus, problems: z.array(z.string().max(500)).max(32).default([]) };

export const systemSection = z.object({
  ...reading,
  hostname: text.optional(),
  vendor: text.optional(),
  product: text.optional(),
  version: text.optional(),
  serial: text.optional(),
  uuid: text.optional(),
  sku: text.optional(),
  family: text.optional(),
  board: z.object({ vendor: text.optional(), product: text.optional(), serial: text.optional() }).optional(),
  chassis: z.object({ vendor: text.optional(), serial: text.optional(), assetTag: text.optional() }).optional(),
  bios: z.object({ vendor: text.optional(), version: text.optional(), date: text.optional() }).optional(),
  kernel: text.optional(),
  architecture: text.optional(),
  os: z.object({ id: text.optional(), version: text.optional(), name: text.optional() }).optional(),
  bootId: text.optional(),
});

export const cpuSection = z.object({
  ...reading,
  vendor: text.optional(),
  model: text.optional(),
  sockets: count.optional(),
  cores: count.optional(),
  threads: count.optional(),
  maxMhz: z.number().nonnegative().optional(),
  numaNodes: z
    .array(z.object({ node: numaNode, cpus: text.optional(), memoryBytes: bytes.optional() }))
    .max(1024)
    .default([]),
});

export const dimm = z.object({
  locator: text.optional(),
  bank: text.optional(),
  sizeBytes: bytes.optional(),
  type: text.optional(),
  speedMts: count.optional(),
  manufacturer: text.optional(),
  serial: text.optional(),
  partNumber: text.optional(),
});
export const memorySection = z.object({
  ...reading,
  totalBytes: bytes.optional(),
  dimms: z.array(dimm).max(1024).default([]),
});

export const disk = z.object({
  /** Kernel name; it may change with every boot. */
  name: text,
  path: text,
  /** A path that outlives a reboot, when udev made one. */
  byId: text.optional(),
  sizeBytes: bytes.optional(),
  logicalBlockBytes: bytes.optional(),
  rotational: z.boolean().optional(),
  removable: z.boolean().optional(),
  model: text.optional(),
  serial: text.optional(),
  wwn: text.optional(),
  transport: z.enum(['nvme', 'sata', 'sas', 'scsi', 'usb', 'virtio', 'other']).optional(),
  pciAddress: pciAddress.optional(),
  numaNode: numaNode.optional(),
  /** What uses it on the host itself: mount points, swap, holders. A disk with users is never given away. */
  usedBy: z.array(text).max(64).default([]),
});
export const disksSection = z.object({ ...reading, disks: z.array(disk).max(4096) });

export const nic = z.object({
  name: text,
  /** The permanent address, whatever a bond or an administrator made of it. */
  mac: mac.optional(),
  currentMac: mac.optional(),
  bus: z.enum(['pci', 'usb', 'virtio', 'other']),
  driver: text.optional(),
  speedMbps: z.number().int().positive().optional(),
  pciAddress: pciAddress.optional(),
  numaNode: numaNode.optional(),
  /** Set on a virtual function: the PCI address of its parent. */
  physicalFunction: pciAddress.optional(),
  /** Set on a physical function that can be split. */
  virtualFunctions: z.object({ total: count, enabled: count }).optional(),
});
export const nicsSection = z.object({ ...reading, nics: z.array(nic).max(4096) });

export const pciDevice = z.object({
  address: pciAddress,
  /** Four hex digits each; class has six. */
  vendor: z.string().regex(/^[0-9a-f]{4}$/),
  device: z.string().regex(/^[0-9a-f]{4}$/),
  class: z.string().regex(/^[0-9a-f]{4}([0-9a-f]{2})?$/),
  driver: text.optional(),
  numaNode: numaNode.optional(),
  name: text.optional(),
});
export const pciSection = z.object({ ...reading, devices: z.array(pciDevice).max(8192) });

/** `unsupported` also stands for "the tool would not say". */
export const migState = z.enum(['enabled', 'disabled', 'unsupported']);

export const migDevice = z.object({
  index: count,
  gpuInstance: count,
  computeInstance: count,
  uuid: text.optional(),
  /** `1g.10gb`, where the tool says it. */
  profile: text.optional(),
  memoryBytes: bytes.optional(),
});
export const gpu = z.object({
  index: count,
  uuid: text.optional(),
  serial: text.optional(),
  product: text.optional(),
  brand: text.optional(),
  architecture: text.optional(),
  pciAddress: pciAddress.optional(),
  /** N of /dev/nvidiaN. */
  minor: count.optional(),
  vbios: text.optional(),
  memoryBytes: bytes.optional(),
  numaNode: numaNode.optional(),
  mig: z.object({ current: migState, pending: migState, devices: z.array(migDevice).max(64).default([]) }),
  ecc: z.boolean().optional(),
  fabric: z.object({ clusterUuid: text.optional(), cliqueId: text.optional(), state: text.optional() }).optional(),
  virtualization: text.optional(),
  license: text.optional(),
  /** The driver no longer reaches it: its identity stands, its figures do not. */
  lost: z.boolean().default(false),
  /** What the tool said in place of a value that should be there, or a recovery that it asks for. */
  trouble: z.array(text).max(32).default([]),
});
export const gpuLink = z.object({ a: count, b: count, kind: z.string().max(16) });
/** One error line of the driver in the kernel log. `at` is the machine's own time. */
export const gpuXid = z.object({
  id: text,
  pciAddress,
  code: z.number().int().nonnegative().max(65_535),
  at: z.iso.datetime(),
});
export const gpusSection = z.object({
  ...reading,
  driverVersion: text.optional(),
  cudaVersion: text.optional(),
  /** What the tool's header says, which may differ from the number of blocks below it. */
  attached: count.optional(),
  gpus: z.array(gpu).max(256),
  links: z.array(gpuLink).max(4096).default([]),
  xids: z.array(gpuXid).max(64).default([]),
});

export type SystemSection = z.infer<typeof systemSection>;
export type CpuSection = z.infer<typeof cpuSection>;
export type MemorySection = z.infer<typeof memorySection>;
export type Dimm = z.infer<typeof dimm>;
export type DisksSection = z.infer<typeof disksSection>;
export type Disk = z.infer<typeof disk>;
export type NicsSection = z.infer<typeof nicsSection>;
export type Nic = z.infer<typeof nic>;
export type PciSection = z.infer<typeof pciSection>;
export type PciDevice = z.infer<typeof pciDevice>;
export type GpusSection = z.infer<typeof gpusSection>;
export type Gpu = z.infer<typeof gpu>;
export type GpuLink = z.infer<typeof gpuLink>;
export type GpuXid = z.infer<typeof gpuXid>;
export type MigDevice = z.infer<typeof migDevice>;
export type MigState = z.infer<typeof migState>;
