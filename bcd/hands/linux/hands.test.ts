import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseInventory } from '#core/inventory/inventory.ts';
import { LinuxHands } from './hands.ts';
import { runTool } from './tool.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'bcd-tree-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const file = (path: string, text: string | Buffer) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
};
const files = (home: string, values: Record<string, string | Buffer>) => {
  for (const [name, value] of Object.entries(values)) file(`${home}/${name}`, value);
};
/** Like the kernel's: relative, inside the tree. */
const link = (path: string, target: string) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  const up = '../'.repeat(path.split('/').length - 2);
  symlinkSync(`${up}${target.slice(1)}`, join(root, path));
};

function machine() {
  files('/proc', {
    cpuinfo:
      'processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nmodel name\t: Xeon\nphysical id\t: 1\ncore id\t\t: 0\n',
    meminfo: 'MemTotal:       1024 kB\n',
    'self/mountinfo': '22 1 259:2 / / rw - ext4 /dev/nvme0n1p1 rw\n',
    swaps: 'Filename\n',
    'sys/kernel/hostname': 'rack7-u12\n',
    'sys/kernel/random/boot_id': '638f5d86-fa70-4a42-bc4c-5c5687141118\n',
  });
  files('/sys/class/dmi/id', {
    sys_vendor: 'Supermicro\n',
    product_serial: 'S123456X\n',
    product_uuid: 'ABCDEF00-1111-2222-3333-445566778899\n',
  });
  files('/sys/devices/system/node/node0', { cpulist: '0-1\n', meminfo: 'Node 0 MemTotal:   1024 kB\n' });

  // A system disk with a mounted partition, a blank data disk behind an NVMe multipath head, a SAS disk in an array.
  const nvme0 = '/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0/nvme/nvme0/nvme0n1';
  files(nvme0, {
    size: '1875385008\n',
    dev: '259:1\n',
    wwid: 'eui.0025385901a00001\n',
    'queue/rotational': '0\n',
    'queue/logical_block_size': '512\n',
    removable: '0\n',
  });
  files(`${nvme0}/nvme0n1p1`, { dev: '259:2\n', partition: '1\n' });
  link('/sys/block/nvme0n1', nvme0);
  const head = '/sys/devices/virtual/nvme-subsystem/nvme-subsys1';
  files(`${head}/nvme1n1`, {
    size: '7501476528\n',
    dev: '259:3\n',
    wwid: 'eui.0025385901a00002\n',
    'queue/rotational': '0\n',
  });
  files(head, { serial: 'S4YPNE0R\n', model: 'SAMSUNG MZQL23T8\n' });
  files('/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme1', { cntlid: '1\n' });
  link(`${head}/nvme1`, '/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme1');
  link(`${head}/nvme1n1/device`, head);
  link('/sys/block/nvme1n1', `${head}/nvme1n1`);
  const sda = '/sys/devices/pci0000:00/0000:00:11.4/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda';
  files(sda, { size: '1000\n', dev: '8:0\n', 'queue/rotational': '1\n', 'holders/md0': '' });
  files(dirname(dirname(sda)), {
    wwid: 'naa.5000c50012345678\n',
    model: 'ST4000     \n',
    vpd_pg80: Buffer.from('\0\x80\0\x08ZC1ABCDE', 'latin1'),
  });
  link(`${sda}/device`, dirname(dirname(sda)));
  link('/sys/block/sda', sda);
  files('/sys/devices/virtual/block/loop0', { size: '8\n' });
  link('/sys/block/loop0', '/sys/devices/virtual/block/loop0');
  link('/dev/disk/by-id/nvme-eui.0025385901a00002', '/dev/nvme1n1');

  // A port with a function of its own, its virtual function, a BMC's USB network, a bridge.
  const pf = '/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0';
  files(pf, {
    sriov_totalvfs: '16\n',
    sriov_numvfs: '1\n',
    numa_node: '1\n',
    vendor: '0x15b3\n',
    device: '0x1021\n',
    class: '0x020000\n',
  });
  files(`${pf}/net/eth0`, {
    address: 'aa:bb:cc:00:00:01\n',
    addr_assign_type: '0\n',
    'bonding_slave/perm_hwaddr': '3c:ec:ef:00:00:01\n',
    speed: '400000\n',
  });
  link(`${pf}/net/eth0/device`, pf);
  link('/sys/class/net/eth0', `${pf}/net/eth0`);
  link('/sys/bus/pci/devices/0000:81:00.0', pf);
  const vf = '/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.1';
  files(`${vf}/net/eth1`, { address: '3c:ec:ef:00:01:01\n', addr_assign_type: '0\n', speed: '-1\n' });
  link(`${vf}/physfn`, pf);
  link(`${vf}/net/eth1/device`, vf);
  link('/sys/class/net/eth1', `${vf}/net/eth1`);
  const usb = '/sys/devices/pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0';
  files(`${usb}/net/usb0`, { address: 'be:3a:f2:b6:05:9f\n', addr_assign_type: '0\n' });
  link(`${usb}/net/usb0/device`, usb);
  link('/sys/class/net/usb0', `${usb}/net/usb0`);
  files('/sys/devices/virtual/net/br0', { address: '3c:ec:ef:00:00:01\n' });
  link('/sys/class/net/br0', '/sys/devices/virtual/net/br0');
}

const noTool = async () => ({ outcome: 'missing' as const, stdout: '', stderr: '' });

test('reads a captured tree', async () => {
  machine();
  const hands = new LinuxHands({ root, run: noTool });
  const { sections } = parseInventory(await hands.collectInventory());
  expect(await hands.hostname()).toBe('rack7-u12');
  expect(sections.system).toMatchObject({
    status: 'partial',
    vendor: 'Supermicro',
    serial: 'S123456X',
    uuid: 'abcdef00-1111-2222-3333-445566778899',
  });
  expect(sections.cpu).toMatchObject({
    status: 'ok',
    sockets: 2,
    cores: 2,
    threads: 2,
    numaNodes: [{ node: 0, cpus: '0-1', memoryBytes: 1048576 }],
  });
  expect(sections.memory.totalBytes).toBe(1048576);
  expect(sections.disks.disks).toEqual([
    {
      name: 'nvme0n1',
      path: '/dev/nvme0n1',
      sizeBytes: 960197124096,
      logicalBlockBytes: 512,
      rotational: false,
      removable: false,
      wwn: 'eui.0025385901a00001',
      transport: 'nvme',
      pciAddress: '0000:01:00.0',
      usedBy: ['/'],
    },
    {
      name: 'nvme1n1',
      path: '/dev/nvme1n1',
      byId: '/dev/disk/by-id/nvme-eui.0025385901a00002',
      sizeBytes: 3840755982336,
      rotational: false,
      model: 'SAMSUNG MZQL23T8',
      serial: 'S4YPNE0R',
      wwn: 'eui.0025385901a00002',
      transport: 'nvme',
      pciAddress: '0000:41:00.0',
      usedBy: [],
    },
    {
      name: 'sda',
      path: '/dev/sda',
      sizeBytes: 512000,
      rotational: true,
      model: 'ST4000',
      serial: 'ZC1ABCDE',
      wwn: 'naa.5000c50012345678',
      transport: 'sas',
      pciAddress: '0000:00:11.4',
      usedBy: ['holder md0'],
    },
  ]);
  expect(
    sections.nics.nics.map((n) => [n.name, n.mac, n.bus, n.physicalFunction, n.virtualFunctions?.total, n.speedMbps]),
  ).toEqual([
    ['eth0', '3c:ec:ef:00:00:01', 'pci', undefined, 16, 400000],
    ['eth1', '3c:ec:ef:00:01:01', 'pci', '0000:81:00.0', undefined, undefined],
    ['usb0', 'be:3a:f2:b6:05:9f', 'usb', undefined, undefined, undefined],
  ]);
  expect(sections.pci.devices).toEqual([
    { address: '0000:81:00.0', vendor: '15b3', device: '1021', class: '020000', numaNode: 1 },
  ]);
  expect(sections.gpus).toMatchObject({ status: 'absent', gpus: [] });
});

test('an empty tree gives an inventory that says so, not an exception', async () => {
  const { sections } = parseInventory(await new LinuxHands({ root, run: noTool }).collectInventory());
  expect(Object.values(sections).map((s) => s.status)).toEqual([
    'partial',
    'failed',
    'failed',
    'failed',
    'failed',
    'absent',
    'absent',
  ]);
});

test('tools run in the C locale, end at their deadline and at their bound', async () => {
  const before = { LANG: process.env['LANG'], LC_ALL: process.env['LC_ALL'], LC_NUMERIC: process.env['LC_NUMERIC'] };
  Object.assign(process.env, { LANG: 'fr_FR.UTF-8', LC_ALL: 'fr_FR.UTF-8', LC_NUMERIC: 'de_DE' });
  try {
    const told = await runTool('env', [], { deadlineMs: 10_000 });
    expect(told.stdout).toContain('LC_ALL=C\n');
    expect(told.stdout).not.toMatch(/fr_FR|de_DE/);
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
  expect(await runTool('sh', ['-c', 'sleep 30'], { deadlineMs: 50 })).toMatchObject({ outcome: 'timeout' });
  expect(await runTool('sh', ['-c', 'yes'], { deadlineMs: 20_000, outputBytesMax: 1000 })).toMatchObject({
    outcome: 'flood',
  });
  expect(await runTool('sh', ['-c', 'echo no; exit 9'], { deadlineMs: 10_000 })).toMatchObject({
    outcome: 'exited',
    exitCode: 9,
    stdout: 'no\n',
  });
  expect(await runTool('no-such-program-here', [], { deadlineMs: 1000 })).toMatchObject({ outcome: 'missing' });
});

test('a file that may not be read costs its section alone', async () => {
  machine();
  chmodSync(join(root, '/proc/cpuinfo'), 0);
  rmSync(join(root, '/proc/cpuinfo'));
  const { sections } = await new LinuxHands({ root, run: noTool }).collectInventory();
  expect(sections.cpu.status).toBe('failed');
  expect(sections.disks.status).toBe('ok');
});
