/**
 * The hardware of a fake machine: derived from its number alone, so that a fleet of them is the same in every run, with
 * identities that no two share. Eight GPUs on two NUMA nodes, a system disk in use, data disks, two ports.
 */
import type { Disk, Gpu, GpuLink, Nic, NodeInventory, PciDevice } from '#core/inventory/inventory.ts';
import { INVENTORY_VERSION } from '#core/inventory/inventory.ts';

export interface FakeModel {
  readonly product: string;
  readonly architecture: string;
  readonly memoryBytes: number;
  readonly pciDevice: string;
}

const GIB = 1024 ** 3;
/** Model word -> what the vendor's tool says of it. */
export const FAKE_MODELS = {
  h100: { product: 'NVIDIA H100 80GB HBM3', architecture: 'Hopper', memoryBytes: 80 * GIB, pciDevice: '2330' },
  h200: { product: 'NVIDIA H200', architecture: 'Hopper', memoryBytes: 141 * GIB, pciDevice: '2335' },
  b200: { product: 'NVIDIA B200', architecture: 'Blackwell', memoryBytes: 180 * GIB, pciDevice: '2901' },
  a100: { product: 'NVIDIA A100-SXM4-80GB', architecture: 'Ampere', memoryBytes: 80 * GIB, pciDevice: '20b2' },
  l40s: { product: 'NVIDIA L40S', architecture: 'Ada Lovelace', memoryBytes: 48 * GIB, pciDevice: '26b9' },
} as const satisfies Record<string, FakeModel>;
export type FakeModelName = keyof typeof FAKE_MODELS;

export interface FakeShape {
  /** 0 to 65,535; every identity follows from it. */
  readonly number: number;
  readonly model: FakeModelName;
  readonly gpus: number;
  readonly dataDisks: number;
}

export const DEFAULT_SHAPE: Omit<FakeShape, 'number'> = { model: 'h100', gpus: 8, dataDisks: 4 };

const hex = (n: number, width: number) => n.toString(16).padStart(width, '0');
const numaOf = (index: number, of: number) => (index < of / 2 ? 0 : 1);

export function fakeGpuUuid(machine: number, index: number): string {
  return `GPU-fa4e${hex(machine, 4)}-${hex(index, 4)}-4000-8000-${hex(machine * 64 + index + 1, 12)}`;
}

function gpus(shape: FakeShape): Gpu[] {
  const model = FAKE_MODELS[shape.model];
  return Array.from({ length: shape.gpus }, (_, index) => ({
    index,
    uuid: fakeGpuUuid(shape.number, index),
    serial: `16500${hex(shape.number, 5)}${hex(index, 3)}`,
    product: model.product,
    brand: 'NVIDIA',
    architecture: model.architecture,
    pciAddress: `0000:${hex(0x10 + index, 2)}:00.0`,
    minor: index,
    vbios: '96.00.99.00.01',
    memoryBytes: model.memoryBytes,
    numaNode: numaOf(index, shape.gpus),
    mig: { current: 'disabled' as const, pending: 'disabled' as const, devices: [] },
    ecc: true,
    lost: false,
    trouble: [],
  }));
}

function links(count: number): GpuLink[] {
  const out: GpuLink[] = [];
  for (let a = 0; a < count; a++) for (let b = a + 1; b < count; b++) out.push({ a, b, kind: 'NV18' });
  return out;
}

function disks(shape: FakeShape): Disk[] {
  return Array.from({ length: shape.dataDisks + 1 }, (_, index) => ({
    name: `nvme${index}n1`,
    path: `/dev/nvme${index}n1`,
    sizeBytes: index === 0 ? 960_197_124_096 : 3_840_755_982_336,
    logicalBlockBytes: 512,
    rotational: false,
    removable: false,
    model: index === 0 ? 'FAKE SYSTEM 960G' : 'FAKE DATA 3T84',
    serial: `FAKE${hex(shape.number, 4)}${hex(index, 4)}`,
    wwn: `eui.fa4e${hex(shape.number, 4)}${hex(index + 1, 8)}`,
    transport: 'nvme' as const,
    pciAddress: `0000:${hex(0x60 + index, 2)}:00.0`,
    numaNode: 0,
    usedBy: index === 0 ? ['/', '/boot/efi'] : [],
  }));
}

function nics(shape: FakeShape): Nic[] {
  return [0, 1].map((index) => ({
    name: `eth${index}`,
    mac: `02:fa:4e:${hex(shape.number >> 8, 2)}:${hex(shape.number & 0xff, 2)}:${hex(index + 1, 2)}`,
    bus: 'pci' as const,
    driver: 'mlx5_core',
    speedMbps: 400_000,
    pciAddress: `0000:${hex(0x80 + index, 2)}:00.0`,
    numaNode: index,
  }));
}

/** The machine in health. */
export function fakeInventory(shape: FakeShape, bootId: string): NodeInventory {
  const model = FAKE_MODELS[shape.model];
  const cards = gpus(shape);
  const pci: PciDevice[] = cards.map((g) => ({
    address: g.pciAddress!,
    vendor: '10de',
    device: model.pciDevice,
    class: '030200',
    driver: 'nvidia',
    numaNode: g.numaNode!,
  }));
  const ok = () => ({ status: 'ok' as const, problems: [] });
  return {
    version: INVENTORY_VERSION,
    sections: {
      system: {
        ...ok(),
        hostname: `fake-${hex(shape.number, 4)}`,
        vendor: 'Fake Systems',
        product: `GPU Server ${shape.gpus}x ${shape.model}`,
        serial: `FS${hex(shape.number, 8).toUpperCase()}`,
        uuid: `fa4e${hex(shape.number, 4)}-0000-4000-8000-0000fa4e${hex(shape.number, 4)}`,
        kernel: '6.12.0-fake',
        architecture: 'x86_64',
        os: { id: 'debian', version: '13', name: 'Debian GNU/Linux 13' },
        bootId,
      },
      cpu: {
        ...ok(),
        vendor: 'AuthenticAMD',
        model: 'AMD EPYC 9654 96-Core Processor',
        sockets: 2,
        cores: 192,
        threads: 384,
        maxMhz: 3707,
        numaNodes: [
          { node: 0, cpus: '0-95,192-287', memoryBytes: 768 * GIB },
          { node: 1, cpus: '96-191,288-383', memoryBytes: 768 * GIB },
        ],
      },
      memory: { ...ok(), totalBytes: 1536 * GIB, dimms: [] },
      disks: { ...ok(), disks: disks(shape) },
      nics: { ...ok(), nics: nics(shape) },
      pci: { ...ok(), devices: pci },
      gpus: {
        ...ok(),
        driverVersion: '580.65.06',
        cudaVersion: '13.0',
        attached: shape.gpus,
        gpus: cards,
        links: links(shape.gpus),
        xids: [],
      },
    },
  };
}
