/** The nics and pci sections, from sysfs. */
import type { Nic, NicsSection, PciDevice, PciSection } from '#core/inventory/inventory.ts';
import { decimal, given, macAddress, pciAddress, pciAddressIn, type Tree } from './source.ts';
import type { RunTool } from './tool.ts';

const hex = (text: string | undefined) => /^0x([0-9a-f]+)$/i.exec(text ?? '')?.[1]?.toLowerCase();

export async function readPci(tree: Tree): Promise<PciSection> {
  const home = '/sys/bus/pci/devices';
  if ((await tree.real(home)) === undefined) return { status: 'absent', problems: ['no PCI bus'], devices: [] };
  const devices: PciDevice[] = [];
  let unread = 0;
  for (const name of await tree.names(home)) {
    const at = `${home}/${name}`;
    const [address, vendor, device, kind] = [
      pciAddress(name),
      hex(tree.value(`${at}/vendor`)),
      hex(tree.value(`${at}/device`)),
      hex(tree.value(`${at}/class`)),
    ];
    if (address === undefined || vendor?.length !== 4 || device?.length !== 4 || kind?.length !== 6) {
      unread++;
      continue;
    }
    const driver = await tree.linkName(`${at}/driver`);
    devices.push(given({ address, vendor, device, class: kind, driver, numaNode: tree.integer(`${at}/numa_node`) }));
  }
  return {
    status: unread === 0 ? 'ok' : 'partial',
    problems: unread === 0 ? [] : [`${unread} PCI functions cannot be read`],
    devices: devices.slice(0, 8192),
  };
}

/** `ip -j link`: interface -> permanent address, which it names only where the present one differs. */
export function parsePermanentAddresses(json: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let links: unknown;
  try {
    links = JSON.parse(json.slice(0, 4_000_000));
  } catch {
    return found;
  }
  for (const link of Array.isArray(links) ? links : []) {
    const { ifname, permaddr } = (link ?? {}) as { ifname?: unknown; permaddr?: unknown };
    const mac = typeof permaddr === 'string' ? macAddress(permaddr) : undefined;
    if (typeof ifname === 'string' && mac !== undefined) found.set(ifname, mac);
  }
  return found;
}

function bus(path: string): Nic['bus'] {
  if (/\/usb\d/.test(path)) return 'usb';
  if (/\/virtio\d/.test(path)) return 'virtio';
  return pciAddressIn(path) === undefined ? 'other' : 'pci';
}

export async function readNics(tree: Tree, run: RunTool, signal?: AbortSignal): Promise<NicsSection> {
  const home = '/sys/class/net';
  if ((await tree.real(home)) === undefined) {
    return { status: 'failed', problems: ['/sys/class/net cannot be read'], nics: [] };
  }
  const nics: Nic[] = [];
  let permanent: ReadonlyMap<string, string> | undefined;
  for (const name of await tree.names(home)) {
    const at = `${home}/${name}`;
    const path = await tree.real(`${at}/device`);
    // Bridges, bonds, VLANs and the like have no device behind them.
    if (path === undefined) continue;
    const current = macAddress(tree.value(`${at}/address`));
    let mac = macAddress(tree.value(`${at}/bonding_slave/perm_hwaddr`));
    if (mac === undefined && decimal(tree.value(`${at}/addr_assign_type`)) !== 0) {
      permanent ??= parsePermanentAddresses(
        (await run('ip', ['-j', 'link'], { deadlineMs: 10_000, ...(signal === undefined ? {} : { signal }) })).stdout,
      );
      mac = permanent.get(name);
    }
    mac ??= current;
    const totalVfs = tree.integer(`${at}/device/sriov_totalvfs`);
    const speed = tree.integer(`${at}/speed`);
    nics.push(
      given({
        name,
        mac,
        currentMac: current === mac ? undefined : current,
        bus: bus(path),
        driver: await tree.linkName(`${at}/device/driver`),
        speedMbps: speed === undefined || speed === 0 ? undefined : speed,
        pciAddress: pciAddressIn(path),
        numaNode: tree.integer(`${at}/device/numa_node`),
        physicalFunction: pciAddressIn(await tree.real(`${at}/device/physfn`)),
        virtualFunctions:
          totalVfs === undefined || totalVfs === 0
            ? undefined
            : { total: totalVfs, enabled: tree.integer(`${at}/device/sriov_numvfs`) ?? 0 },
      }),
    );
  }
  return { status: 'ok', problems: [], nics: nics.slice(0, 4096) };
}
