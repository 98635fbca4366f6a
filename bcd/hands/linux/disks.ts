/**
 * Disks from /sys/block. Never through udev's database (`lsblk` without udevd says null for every serial). What the
 * kernel itself makes (loop, zram, device mapper) is no disk; NVMe under a multipath head is.
 */
import { isPlaceholder } from '#core/inventory/hardware-key.ts';
import type { Disk, DisksSection } from '#core/inventory/inventory.ts';
import { clean, given, pciAddressIn, type Tree } from './source.ts';

/** Device number or /dev path -> what uses it. */
export type BlockUsers = ReadonlyMap<string, readonly string[]>;

/** From /proc/self/mountinfo and /proc/swaps: by `major:minor` and by source path, since some file systems hide the first. */
export function blockUsers(mountinfo: string, swaps: string): BlockUsers {
  const users = new Map<string, string[]>();
  const add = (key: string, user: string) => {
    const list = users.get(key) ?? [];
    if (!list.includes(user)) users.set(key, [...list, user]);
  };
  const plain = (text: string) =>
    text.replace(/\\([0-7]{3})/g, (_, o: string) => String.fromCharCode(Number.parseInt(o, 8)));
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ');
    const fields = left?.split(' ') ?? [];
    const [number, mountPoint, source] = [fields[2], fields[4], right?.split(' ')[1]];
    if (number === undefined || mountPoint === undefined) continue;
    const user = clean(plain(mountPoint)) ?? '/';
    add(number, user);
    if (source?.startsWith('/dev/')) add(plain(source), user);
  }
  for (const line of swaps.split('\n').slice(1)) {
    const path = line.split(/\s+/)[0];
    if (path?.startsWith('/dev/')) add(plain(path), 'swap');
  }
  return users;
}

/** An identity that says something; vendors leave blanks, zeros and words in these fields. */
function identity(text: string | undefined): string | undefined {
  const cleaned = clean(text);
  if (cleaned === undefined || isPlaceholder(cleaned)) return undefined;
  // `eui.0000000000000000`, `naa.0000000000000000`
  return /^(eui|naa|uuid|nvme)\.[0-]+$/i.test(cleaned) ? undefined : cleaned;
}

/** SCSI vital product data, page 80h: four bytes of header, then the serial number. */
export function vpdSerial(page: Buffer | undefined): string | undefined {
  if (page === undefined || page.length < 4 || page[1] !== 0x80) return undefined;
  return clean(page.toString('latin1', 4, 4 + page.readUInt16BE(2)));
}

function transport(name: string, path: string): Disk['transport'] {
  if (name.startsWith('nvme')) return 'nvme';
  if (/\/usb\d/.test(path)) return 'usb';
  if (/\/virtio\d/.test(path)) return 'virtio';
  if (/\/ata\d/.test(path)) return 'sata';
  if (/\/(end_device|expander)-/.test(path)) return 'sas';
  return /\/host\d/.test(path) ? 'scsi' : 'other';
}

/** Links in /dev/disk/by-id -> kernel name, the most telling name of each disk first. */
async function stableLinks(tree: Tree): Promise<ReadonlyMap<string, string>> {
  const rank = (name: string) => {
    const order = ['wwn-', 'nvme-eui.', 'nvme-', 'scsi-', 'ata-', 'virtio-'];
    const at = order.findIndex((prefix) => name.startsWith(prefix));
    return at < 0 ? order.length : at;
  };
  const names = await tree.names('/dev/disk/by-id');
  const best = new Map<string, string>();
  for (const name of names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1))) {
    const target = await tree.linkName(`/dev/disk/by-id/${name}`);
    if (target !== undefined && !best.has(target)) best.set(target, `/dev/disk/by-id/${name}`);
  }
  return best;
}

/** The PCI function behind an NVMe multipath head, which itself hangs under no bus. */
async function controllerPath(tree: Tree, block: string): Promise<string | undefined> {
  for (const name of await tree.names(`${block}/device`)) {
    if (/^nvme\d+$/.test(name)) return tree.real(`${block}/device/${name}`);
  }
  return undefined;
}

async function readDisk(
  tree: Tree,
  name: string,
  users: BlockUsers,
  links: ReadonlyMap<string, string>,
): Promise<Disk[]> {
  const block = `/sys/block/${name}`;
  const path = await tree.real(block);
  if (path === undefined || (path.includes('/devices/virtual/') && !path.includes('/nvme-subsystem/'))) return [];
  if (/^(sr|fd)\d/.test(name) || tree.value(`${block}/hidden`) === '1') return [];
  const sectors = tree.integer(`${block}/size`);
  const rotational = tree.value(`${block}/queue/rotational`);
  const removable = tree.value(`${block}/removable`);
  const usedBy: string[] = [];
  for (const part of [name, ...(await tree.names(block)).filter((n) => n.startsWith(name))]) {
    const home = part === name ? block : `${block}/${part}`;
    for (const key of [tree.value(`${home}/dev`), `/dev/${part}`]) {
      if (key !== undefined) usedBy.push(...(users.get(key) ?? []));
    }
    usedBy.push(...(await tree.names(`${home}/holders`)).map((h) => `holder ${h}`));
  }
  const bus = path.includes('/devices/virtual/') ? await controllerPath(tree, block) : path;
  const numa = bus === undefined ? undefined : tree.integer(`/sys/bus/pci/devices/${pciAddressIn(bus)}/numa_node`);
  return [
    given({
      name,
      path: `/dev/${name}`,
      byId: links.get(name),
      // The unit of this file is 512 bytes, whatever the disk's own sector is.
      sizeBytes: sectors === undefined ? undefined : sectors * 512,
      logicalBlockBytes: tree.integer(`${block}/queue/logical_block_size`),
      rotational: rotational === undefined ? undefined : rotational === '1',
      removable: removable === undefined ? undefined : removable === '1',
      model: clean(tree.value(`${block}/device/model`)),
      serial:
        identity(tree.value(`${block}/serial`)) ??
        identity(tree.value(`${block}/device/serial`)) ??
        identity(vpdSerial(tree.bytes(`${block}/device/vpd_pg80`))),
      wwn: identity(tree.value(`${block}/wwid`)) ?? identity(tree.value(`${block}/device/wwid`)),
      transport: transport(name, path),
      pciAddress: pciAddressIn(bus),
      numaNode: numa,
      usedBy: [...new Set(usedBy)].slice(0, 64),
    }),
  ];
}

export async function readDisks(tree: Tree): Promise<DisksSection> {
  const names = await tree.names('/sys/block');
  if (names.length === 0 && (await tree.real('/sys/block')) === undefined) {
    return { status: 'failed', problems: ['/sys/block cannot be read'], disks: [] };
  }
  const mountinfo = tree.file('/proc/self/mountinfo');
  if (mountinfo === undefined) {
    return {
      status: 'failed',
      problems: ['/proc/self/mountinfo cannot be read: no telling which disks are in use'],
      disks: [],
    };
  }
  const users = blockUsers(mountinfo, tree.file('/proc/swaps') ?? '');
  const links = await stableLinks(tree);
  const disks: Disk[] = [];
  for (const name of names) disks.push(...(await readDisk(tree, name, users, links)));
  return { status: 'ok', problems: [], disks: disks.slice(0, 4096) };
}
