/** The system, cpu and memory sections, from SMBIOS, procfs and sysfs. */
import type { CpuSection, MemorySection, SystemSection } from '#core/inventory/inventory.ts';
import { parseSmbios, type SmbiosFacts } from './smbios.ts';
import { clean, decimal, given, sizeInBytes, type Tree } from './source.ts';

const DMI_TABLE = '/sys/firmware/dmi/tables/DMI';
const DMI_STRINGS = '/sys/class/dmi/id';

/** The raw table where we may read it, the kernel's single strings where not, nothing on a machine without SMBIOS. */
export function readSmbios(tree: Tree): { facts: SmbiosFacts; problem?: string } {
  const table = tree.bytes(DMI_TABLE);
  if (table !== undefined && table.length > 0) return { facts: parseSmbios(table) };
  const id = (name: string) => tree.value(`${DMI_STRINGS}/${name}`);
  const facts: SmbiosFacts = given({
    bios: given({ vendor: id('bios_vendor'), version: id('bios_version'), date: id('bios_date') }),
    vendor: id('sys_vendor'),
    product: id('product_name'),
    version: id('product_version'),
    serial: id('product_serial'),
    uuid: id('product_uuid')?.toLowerCase(),
    sku: id('product_sku'),
    family: id('product_family'),
    board: given({ vendor: id('board_vendor'), product: id('board_name'), serial: id('board_serial') }),
    chassis: given({ vendor: id('chassis_vendor'), serial: id('chassis_serial'), assetTag: id('chassis_asset_tag') }),
    processors: [],
    dimms: [],
  });
  if (facts.vendor === undefined && facts.product === undefined && facts.uuid === undefined) {
    return { facts: { processors: [], dimms: [] }, problem: 'no SMBIOS on this machine' };
  }
  return { facts, problem: 'the SMBIOS table cannot be read (needs root); serial numbers may be missing' };
}

/** `KEY="value"` lines of /etc/os-release. */
export function parseOsRelease(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const line of text.split('\n')) {
    const match = /^([A-Z_]{1,40})=(?:"([^"]*)"|'([^']*)'|(.*))$/.exec(line.trim());
    const value = clean(match?.[2] ?? match?.[3] ?? match?.[4]);
    if (match !== null && value !== undefined) found.set(match[1]!, value);
  }
  return found;
}

export function readSystem(tree: Tree, smbios: ReturnType<typeof readSmbios>, architecture: string): SystemSection {
  const { processors: _, dimms: __, ...firmware } = smbios.facts;
  const release = parseOsRelease(tree.file('/etc/os-release') ?? tree.file('/usr/lib/os-release') ?? '');
  const os = given({ id: release.get('ID'), version: release.get('VERSION_ID'), name: release.get('PRETTY_NAME') });
  return given({
    status: smbios.problem === undefined ? 'ok' : 'partial',
    problems: smbios.problem === undefined ? [] : [smbios.problem],
    ...firmware,
    hostname: tree.value('/proc/sys/kernel/hostname'),
    kernel: tree.value('/proc/sys/kernel/osrelease'),
    architecture,
    os: Object.keys(os).length === 0 ? undefined : os,
    bootId: tree.value('/proc/sys/kernel/random/boot_id'),
  } satisfies SystemSection);
}

export interface CpuFacts {
  readonly vendor?: string;
  readonly model?: string;
  readonly sockets?: number;
  readonly cores?: number;
  readonly threads: number;
}

/** /proc/cpuinfo of x86 and, with less in it, of other machines. */
export function parseCpuinfo(text: string): CpuFacts {
  const packages = new Set<string>();
  const cores = new Set<string>();
  let threads = 0;
  let vendor: string | undefined;
  let model: string | undefined;
  for (const block of text.split(/\n\s*\n/)) {
    const field = (label: string) => clean(new RegExp(`^${label}\\s*: (.*)$`, 'm').exec(block)?.[1]);
    if (field('processor') === undefined) continue;
    threads++;
    vendor ??= field('vendor_id') ?? field('CPU implementer');
    model ??= field('model name');
    const [socket, core] = [field('physical id'), field('core id')];
    if (socket !== undefined) packages.add(socket);
    if (socket !== undefined && core !== undefined) cores.add(`${socket}:${core}`);
  }
  return given({ vendor, model, sockets: packages.size || undefined, cores: cores.size || undefined, threads });
}

export async function readCpu(tree: Tree, smbios: SmbiosFacts): Promise<CpuSection> {
  const text = tree.file('/proc/cpuinfo');
  if (text === undefined) return { status: 'failed', problems: ['/proc/cpuinfo cannot be read'], numaNodes: [] };
  const facts = parseCpuinfo(text);
  const maxKhz = tree.integer('/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq');
  const numaNodes: CpuSection['numaNodes'] = [];
  for (const name of await tree.names('/sys/devices/system/node')) {
    const node = decimal(/^node(\d{1,5})$/.exec(name)?.[1]);
    if (node === undefined) continue;
    const meminfo = tree.file(`/sys/devices/system/node/${name}/meminfo`) ?? '';
    numaNodes.push(
      given({
        node,
        cpus: tree.value(`/sys/devices/system/node/${name}/cpulist`),
        memoryBytes: sizeInBytes(/MemTotal:\s+(\d+ kB)/.exec(meminfo)?.[1]),
      }),
    );
  }
  const empty = facts.threads === 0;
  return given({
    status: empty ? 'failed' : 'ok',
    problems: empty ? ['/proc/cpuinfo names no processor'] : [],
    ...facts,
    threads: facts.threads || undefined,
    model: facts.model ?? smbios.processors[0],
    sockets: facts.sockets ?? (smbios.processors.length || undefined),
    maxMhz: maxKhz === undefined ? undefined : Math.round(maxKhz / 1000),
    numaNodes: numaNodes.slice(0, 1024),
  } satisfies CpuSection);
}

export function parseMeminfo(text: string): number | undefined {
  return sizeInBytes(/^MemTotal:\s+(\d+ kB)\s*$/m.exec(text)?.[1]);
}

export function readMemory(tree: Tree, smbios: SmbiosFacts): MemorySection {
  const totalBytes = parseMeminfo(tree.file('/proc/meminfo') ?? '');
  const unread = totalBytes === undefined;
  return given({
    status: unread ? 'failed' : 'ok',
    problems: unread ? ['/proc/meminfo has no MemTotal'] : [],
    totalBytes,
    dimms: [...smbios.dimms],
  } satisfies MemorySection);
}
