import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseSection } from '#core/inventory/inventory.ts';
import { parsePermanentAddresses } from './buses.ts';
import { parseDmidecode } from './captures/dmidecode.ts';
import { parseEfibootmgr } from './captures/efibootmgr.ts';
import { parseLsblk } from './captures/lsblk.ts';
import { parseLshw } from './captures/lshw.ts';
import { parseLspciMmv, parseLspciNn } from './captures/lspci.ts';
import { blockUsers, vpdSerial } from './disks.ts';
import { parseTopology } from './gpu-topology.ts';
import { nameMigInstances, parseGpuList, parseNvidiaSmi } from './nvidia-smi.ts';
import { parseCpuinfo, parseMeminfo, parseOsRelease } from './platform.ts';
import { parseSmbios } from './smbios.ts';
import { clean, decimal, pciAddress, sizeInBytes, UnreadableSource } from './source.ts';
import { parseXid } from './xids.ts';

const fixture = (name: string) =>
  readFileSync(new URL(`../../../test/fixtures/hardware/${name}`, import.meta.url), 'utf8');
const smi = (name: string) => parseNvidiaSmi(fixture(`gpu/smi-${name}.xml`));
const GPU1 = 'GPU-00000001-0000-4000-8000-000000000001';

describe('nvidia-smi -q -x', () => {
  test('H100: two of eight, whole', () => {
    const s = smi('h100-hbm3-8x-trim2');
    expect(s).toMatchObject({
      status: 'ok',
      problems: [],
      driverVersion: '580.105.08',
      cudaVersion: '13.0',
      attached: 2,
    });
    expect(s.gpus[0]).toEqual({
      index: 0,
      uuid: GPU1,
      serial: '1650000000001',
      product: 'NVIDIA H100 80GB HBM3',
      brand: 'NVIDIA',
      architecture: 'Hopper',
      pciAddress: '0000:53:00.0',
      minor: 0,
      vbios: '96.00.99.00.01',
      memoryBytes: 81559 * 1024 ** 2,
      mig: { current: 'disabled', pending: 'disabled', devices: [] },
      ecc: true,
      fabric: { clusterUuid: '00000000-0000-0000-0000-000000000000', cliqueId: '0', state: 'Completed' },
      virtualization: 'Pass-Through',
      lost: false,
      trouble: [],
    });
    expect(s.gpus[1]).toMatchObject({ pciAddress: '0000:64:00.0', minor: 1 });
  });

  test('A100 in MIG mode: instances without UUID, header counts four, one described', () => {
    const s = smi('a100-sxm4-80gb-mig-on');
    expect(s).toMatchObject({ status: 'partial', problems: ['4 GPUs attached, 1 described'], attached: 4 });
    const { mig } = s.gpus[0]!;
    expect([mig.current, mig.pending]).toEqual(['enabled', 'enabled']);
    expect(mig.devices.map((d) => [d.gpuInstance, d.computeInstance, d.memoryBytes, d.uuid])).toEqual(
      [3, 4, 5, 6].map((gi) => [gi, 0, 19968 * 1024 ** 2, undefined]),
    );
  });

  test('GT 730, schema v9: no memory, no pci block, serial N/A', () => {
    const [g] = smi('gt730-ancient-v9').gpus;
    expect(g).toMatchObject({ uuid: GPU1, product: 'GeForce GT 730', pciAddress: '0000:01:00.0', minor: 0 });
    expect(g).not.toHaveProperty('memoryBytes');
    expect(g).not.toHaveProperty('serial');
    expect(g?.mig.current).toBe('unsupported');
  });

  test('RTX 3080: words where numbers should be are absent', () => {
    const [g] = smi('rtx3080-v12').gpus;
    expect(g).toMatchObject({ product: 'NVIDIA GeForce RTX 3080', memoryBytes: 10240 * 1024 ** 2, trouble: [] });
    for (const absent of ['minor', 'serial', 'ecc']) expect(g).not.toHaveProperty(absent);
  });

  test('vGPU guest: the licence is kept', () => {
    expect(smi('vgpu-guest-constructed').gpus[0]).toMatchObject({
      virtualization: 'VGPU',
      license: 'Unlicensed (Restricted)',
      memoryBytes: 20480 * 1024 ** 2,
    });
  });

  test('a DTD is never used: an outer one is cut off, one inside or an entity refuses the document', () => {
    const body = '<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>';
    expect(parseNvidiaSmi(`<!DOCTYPE nvidia_smi_log SYSTEM "file:///etc/passwd">${body}`).gpus).toEqual([]);
    for (const evil of [
      `<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/passwd">]>${body}`,
      `<!DOCTYPE x SYSTEM "x"><!DOCTYPE y [<!ENTITY a "b">]>${body}`,
    ]) {
      expect(() => parseNvidiaSmi(evil)).toThrow(UnreadableSource);
    }
    const named = parseNvidiaSmi(
      '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="0000:01:00.0"><product_name>&x;</product_name></gpu></nvidia_smi_log>',
    );
    expect(named.gpus[0]?.product).toBe('&x;');
  });

  test('names MIG instances from the list, only where both count alike', () => {
    const list = `GPU 0: NVIDIA A100-SXM4-80GB (UUID: ${GPU1})\n${[0, 1, 2, 3].map((i) => `  MIG 1g.20gb     Device  ${i}: (UUID: MIG-0000000${i}-aaaa)`).join('\n')}\n`;
    const named = nameMigInstances(smi('a100-sxm4-80gb-mig-on'), parseGpuList(list));
    expect(named.gpus[0]!.mig.devices.map((d) => [d.uuid, d.profile])[3]).toEqual(['MIG-00000003-aaaa', '1g.20gb']);
    const short = nameMigInstances(smi('a100-sxm4-80gb-mig-on'), parseGpuList(list.split('\n').slice(0, 3).join('\n')));
    expect(short.gpus[0]!.mig.devices.every((d) => d.uuid === undefined)).toBe(true);
  });
});

test('topology: NVLink of four V100, and eight GPUs without', () => {
  const v100 = parseTopology(fixture('gpu/topo-4x-v100-nv-mixed.txt'));
  expect(v100.names).toEqual(['GPU0', 'GPU1', 'GPU2', 'GPU3', 'mlx5_0']);
  expect(v100.links.map((l) => `${l.a}${l.b}:${l.kind}`)).toEqual([
    '01:NV1',
    '02:NV1',
    '03:NV2',
    '12:NV2',
    '13:NV1',
    '23:NV2',
  ]);
  const pcie = parseTopology(fixture('gpu/topo-8x-pcie-no-nvlink.txt'));
  expect(pcie.links).toHaveLength(28);
  expect(pcie.links.some((l) => l.kind.startsWith('NV'))).toBe(false);
  expect(pcie.links.find((l) => l.a === 6 && l.b === 7)?.kind).toBe('PHB');
  expect(pcie.affinity.get(7)).toEqual({ cpus: '16-31,48-63', numaNode: 1 });
});

describe('disks', () => {
  test('NVMe with its users; loop devices are none', () => {
    expect(parseLsblk(fixture('disk/gpud-lsblk.5.json'))).toEqual([
      {
        name: 'nvme0n1',
        path: '/dev/nvme0n1',
        sizeBytes: 3200631791616,
        rotational: false,
        model: 'FDMP83200FCF11C2',
        serial: 'SAMPLE000001',
        wwn: 'eui.0000000000000001',
        usedBy: ['/boot/efi', '/'],
      },
    ]);
  });
  test('empty serial and wwn are absent; a size as text is a size', () => {
    const disks = parseLsblk(fixture('disk/lsblk-ipa-no-serial-no-wwn.json'));
    expect(disks.map((d) => [d.sizeBytes, d.serial, d.wwn])).toEqual([
      [3116853504, undefined, undefined],
      [4294967295, undefined, undefined],
    ]);
  });
  test('zram, ram, floppy and multipath are no disks', () => {
    expect(parseLsblk(fixture('disk/lsblk-ipa-usb-zram-mpath.json')).map((d) => d.name)).toEqual([
      'sda',
      'sdb',
      'sdc',
      'sdd',
    ]);
  });
  test('trailing blanks go, two devices of one name stay two', () => {
    const disks = parseLsblk(fixture('disk/lsblk-ironlib-trailing-spaces-dup-name.json'));
    expect(disks.map((d) => [d.name, d.serial])).toEqual([
      ['sda', 'SAMPLE000000'],
      ['sdb', 'SAMPLE000001'],
      ['nvme0', 'SAMPLE000002'],
      ['nvme1', 'SAMPLE000003'],
    ]);
    expect(disks[2]?.model).toBe('Micron_9300_MTFDHAL3T8TDP');
  });
  test('boot entries', () => {
    const boot = parseEfibootmgr(fixture('disk/efibootmgr-v.txt'));
    expect(boot).toMatchObject({ current: '0004', timeoutSeconds: 0 });
    expect(boot.order.slice(0, 3)).toEqual(['0004', '0001', '0007']);
    expect(boot.entries).toHaveLength(12);
    expect(boot.entries.filter((e) => !e.active).map((e) => e.number)).toEqual(['0002', '0003']);
  });
  test('users of block devices, with octal escapes and swap', () => {
    const users = blockUsers(
      '22 1 8:2 / / rw - ext4 /dev/sda2 rw\n30 22 0:40 / /mnt/my\\040disk rw - btrfs /dev/sdb1 rw\n',
      'Filename\tType\n/dev/sda3   partition 1 0 -2\n',
    );
    expect([users.get('8:2'), users.get('/dev/sdb1'), users.get('/dev/sda3')]).toEqual([
      ['/'],
      ['/mnt/my disk'],
      ['swap'],
    ]);
  });
  test('SCSI serial number page', () => {
    expect(vpdSerial(Buffer.from([0, 0x80, 0, 4, 0x41, 0x42, 0x43, 0x44, 0x45]))).toBe('ABCD');
    expect(vpdSerial(Buffer.from([0, 0x83, 0, 4, 0x41]))).toBeUndefined();
  });
});

test('PCI: numbers from -nn, names from -mmv', () => {
  const nn = parseLspciNn(fixture('pci/lspci-nn-a10.txt'));
  expect(nn).toHaveLength(20);
  expect(nn.find((d) => d.vendor === '10de')).toEqual({
    address: '0000:06:00.0',
    vendor: '10de',
    device: '2236',
    class: '0302',
    name: 'NVIDIA Corporation GA102GL [A10]',
  });
  const mmv = parseLspciMmv(fixture('pci/lspci-mmv.txt'));
  expect(mmv).toHaveLength(46);
  expect(mmv[0]).toMatchObject({ address: '0000:00:00.0', class: 'Host bridge', subsystem: 'Virtual Machine Chipset' });
});

test('lshw: two versions of its form', () => {
  const small = parseLshw(fixture('lshw/lshw-asrock-c3small.json'));
  expect(small).toMatchObject({ vendor: 'Packet', memoryBytes: 32 * 1024 ** 3, cpus: [{ cores: 8, threads: 16 }] });
  expect(small.dimms).toHaveLength(2);
  expect(small.disks.map((d) => [d.name, d.sizeBytes])).toEqual([
    ['/dev/sda', 480103981056],
    ['/dev/sdb', 480103981056],
  ]);
  const ipa = parseLshw(fixture('lshw/lshw-ipa-v2.json'));
  expect(ipa.dimms.map((d) => d.serial)).toEqual(['101B6543', '101B654E', '101B6545', '101B6540']);
  expect(ipa).toMatchObject({ memoryBytes: 64 * 1024 ** 3, uuid: '00010002-0003-0004-0005-000600070008' });
});

test('dmidecode: blanks are absent', () => {
  const facts = parseDmidecode(fixture('dmi/dmidecode-asrock-uuid-is-mac.txt'));
  expect(facts).toMatchObject({
    vendor: 'Packet',
    product: 'c3.small.x86',
    serial: 'SAMPLE000001',
    uuid: '00000000-0000-0000-0000-020000000001',
    board: { vendor: 'ASRockRack', product: 'E3C246D4I-NL', serial: 'SAMPLE000002' },
    bios: { vendor: 'American Megatrends Inc.', version: 'L2.07B', date: '04/08/2020' },
  });
});

/** One structure of a table: header, body from offset 4 on, strings. */
function structure(type: number, body: readonly number[], strings: readonly string[]): Buffer {
  const text = strings.length === 0 ? '\0\0' : `${strings.join('\0')}\0\0`;
  return Buffer.concat([Buffer.from([type, 4 + body.length, 0, 0, ...body]), Buffer.from(text, 'latin1')]);
}

test('SMBIOS table: little-endian UUID, sizes in three spellings, empty slots', () => {
  const uuid = [0x44, 0x45, 0x4c, 0x4c, 0x43, 0x00, 0x10, 0x35, 0x80, 0x52, 0xb4, 0xc0, 0x4f, 0x4e, 0x4d, 0x31];
  const module = (size: number, extended = 0) =>
    structure(
      17,
      // array, error, widths, size, form, set, locator, bank, type, detail, speed, then strings and extended size
      [
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        size & 255,
        size >> 8,
        9,
        0,
        1,
        0,
        0x22,
        0,
        0,
        0xc0,
        0x12,
        2,
        3,
        0,
        4,
        0,
        extended & 255,
        (extended >> 8) & 255,
        (extended >> 16) & 255,
        0,
      ],
      ['DIMM_A1 ', 'Samsung', 'S1', 'M321R8GA0BB0'],
    );
  const table = Buffer.concat([
    structure(0, [1, 2, 0, 0, 3], ['Vendor', '1.2', '01/02/2025']),
    structure(1, [1, 2, 0, 3, ...uuid, 6, 0, 4], ['Dell Inc.', 'XE9680', 'SVC0001', 'Family']),
    structure(4, [1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], ['CPU1', 'Xeon 8480']),
    module(0x4000),
    module(0x7fff, 0x20000),
    module(0),
    module(0x8400),
    structure(127, [], []),
    Buffer.from('rubbish behind the end'),
  ]);
  const facts = parseSmbios(table);
  expect(facts).toMatchObject({
    vendor: 'Dell Inc.',
    product: 'XE9680',
    serial: 'SVC0001',
    uuid: '4c4c4544-0043-3510-8052-b4c04f4e4d31',
    bios: { vendor: 'Vendor', version: '1.2', date: '01/02/2025' },
    processors: ['Xeon 8480'],
  });
  expect(facts.dimms.map((d) => d.sizeBytes)).toEqual([16 * 1024 ** 3, 128 * 1024 ** 3, 1024 * 1024]);
  expect(facts.dimms[0]).toMatchObject({
    locator: 'DIMM_A1',
    type: 'DDR5',
    speedMts: 4800,
    partNumber: 'M321R8GA0BB0',
  });
});

test('strict values: commas, units and words are no numbers', () => {
  for (const bad of ['4600,0000', '119,4G', '1e3', '-1', ' 5', '0x10', 'N/A', '', undefined, '9'.repeat(20)]) {
    expect(decimal(bad), String(bad)).toBeUndefined();
  }
  expect(decimal('2000.000')).toBe(2000);
  expect([sizeInBytes('81559 MiB'), sizeInBytes('16 GB'), sizeInBytes('119,4 G'), sizeInBytes('12')]).toEqual([
    85520809984,
    17179869184,
    undefined,
    undefined,
  ]);
  expect([pciAddress('00000000:53:00.0'), pciAddress('0A:00.0'), pciAddress('x')]).toEqual([
    '0000:53:00.0',
    '0000:0a:00.0',
    undefined,
  ]);
  expect(clean(' a\0\t b  ')).toBe('a b');
  expect(parseMeminfo('MemTotal:       24683652 kB\n')).toBe(24683652 * 1024);
  expect(parseOsRelease('ID=debian\nPRETTY_NAME="Debian 12"\n').get('PRETTY_NAME')).toBe('Debian 12');
});

test('kernel log: an XID line becomes one with the time of its record', () => {
  const xid = parseXid(
    '4,812,5140900,-;NVRM: Xid (PCI:0000:0a:00): 79, pid=1, GPU has fallen off the bus.',
    'boot',
    1_000_000,
  );
  expect(xid).toEqual({ id: 'boot:812', pciAddress: '0000:0a:00.0', code: 79, at: '1970-01-01T00:16:45.140Z' });
  expect(parseXid('6,813,5140901,-;eth0: link up', 'boot', 0)).toBeUndefined();
});

test('no document makes a parser crash: it answers or throws UnreadableSource', () => {
  const parsers: ((text: string) => unknown)[] = [
    // What it answers must also fit the schema: one odd value must not cost the section.
    (t) => parseSection('gpus', parseNvidiaSmi(t)),
    parseGpuList,
    parseTopology,
    (t) => parseSection('disks', { status: 'ok', disks: parseLsblk(t) }),
    parseLshw,
    (t) => parseSection('pci', { status: 'ok', devices: parseLspciNn(t) }),
    parseLspciNn,
    parseLspciMmv,
    parseDmidecode,
    parseEfibootmgr,
    parseCpuinfo,
    parseMeminfo,
    parseOsRelease,
    parsePermanentAddresses,
    (t) => blockUsers(t, t),
    (t) => parseXid(t, 'b', 0),
    (t) => parseSmbios(Buffer.from(t, 'latin1')),
  ];
  const holds = (text: string) => {
    for (const parse of parsers) {
      try {
        parse(text);
      } catch (error) {
        expect(error, parse.name).toBeInstanceOf(UnreadableSource);
      }
    }
  };
  // Real documents with a piece cut out, doubled or replaced, and JSON of any shape.
  const documents = [
    'gpu/smi-gb200-one-gpu-lost.xml',
    'gpu/smi-vgpu-guest-constructed.xml',
    'gpu/topo-8x-pcie-no-nvlink.txt',
    'disk/lsblk-ipa-usb-zram-mpath.json',
    'disk/efibootmgr-v.txt',
    'dmi/dmidecode-asrock-uuid-is-mac.txt',
    'lshw/lshw-ipa-v2.json',
    'pci/lspci-nn-a10.txt',
  ].map(fixture);
  const mutation = fc
    .record({
      text: fc.constantFrom(...documents),
      from: fc.nat(20_000),
      length: fc.nat(400),
      put: fc.oneof(
        fc.string({ unit: 'binary', maxLength: 20 }),
        fc.constantFrom('<gpu>', '1.5', '-3', ']]>', '<!DOCTYPE x [', '__proto__', '9'.repeat(400), '\u0000'),
      ),
    })
    .map(
      ({ text, from, length, put }) =>
        text.slice(0, from % text.length) + put + text.slice((from % text.length) + length),
    );
  fc.assert(fc.property(mutation, holds), { numRuns: 300 });
  fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 300 }), holds), { numRuns: 200 });
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (v) => {
      holds(JSON.stringify(v));
      holds(JSON.stringify({ blockdevices: [v] }));
      holds(JSON.stringify({ class: 'system', children: [v], logicalname: v }));
    }),
    { numRuns: 100 },
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (b) => void parseSmbios(Buffer.from(b))),
    { numRuns: 300 },
  );
});
