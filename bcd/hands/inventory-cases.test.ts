/** What went wrong on other people's machines, played through readers and review. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { GpusSection, PartialSections, Review } from '#core/inventory/index.ts';
import { reviewInventory } from '#core/inventory/index.ts';
import type { GpuXid, PciSection } from '#core/inventory/inventory.ts';
import { addSeconds } from '#core/kernel/time.ts';
import { readGpus } from './linux/gpus.ts';
import { parseNvidiaSmi } from './linux/nvidia-smi.ts';
import type { ToolAnswer } from './linux/tool.ts';

const fixture = (name: string) =>
  readFileSync(new URL(`../../test/fixtures/hardware/${name}`, import.meta.url), 'utf8');
const NOW = '2026-12-01T06:00:00.000Z';
const GPU0 = 'GPU-00000001-0000-4000-8000-000000000001';
const GPU1 = 'GPU-00000002-0000-4000-8000-000000000002';
const NO_PCI: PciSection = { status: 'ok', problems: [], devices: [] };

const answered = (stdout: string, exitCode = 0): ToolAnswer => ({ outcome: 'exited', exitCode, stdout, stderr: '' });
const collect = (answer: ToolAnswer, list = ''): Promise<GpusSection> =>
  readGpus({
    run: async (_, args) => (args.includes('-x') ? answer : args.includes('-L') ? answered(list) : answered('', 1)),
    pci: NO_PCI,
    xids: () => [],
  });

const NOTHING: Pick<Review, 'sections' | 'devices' | 'faults'> = { sections: {}, devices: [], faults: [] };
const review = (
  before: Pick<Review, 'sections' | 'devices' | 'faults'>,
  incoming: PartialSections,
  now = NOW,
  clearedAt = new Map<string, string>(),
) =>
  reviewInventory({
    known: before.sections,
    incoming,
    devices: before.devices,
    faults: before.faults,
    poolClass: 'metal-host',
    now,
    clearedAt,
  });

const device = (r: Review, stableId: string) => r.devices.find((d) => d.stableId === stableId);
const types = (r: Review, subject: string) => r.conditions.filter((c) => c.subject === subject).map((c) => c.type);
/** What the placer may take. */
const free = (r: Review) =>
  r.devices
    .filter((d) => d.class !== 'node' && d.bookable && d.present && d.health === 'healthy')
    .map((d) => d.stableId);

const healthy = fixture('gpu/smi-gb200-one-gpu-lost.xml')
  .replaceAll('GPU is lost', 'N/A')
  .replaceAll('<remapped_row_failure>Yes', '<remapped_row_failure>No');
const lost = fixture('gpu/smi-gb200-one-gpu-lost.xml').replaceAll(
  '<remapped_row_failure>Yes',
  '<remapped_row_failure>No',
);

test('one GPU lost: the other keeps its data, the lost one its identity, nothing becomes 0', async () => {
  const before = await review(NOTHING, { gpus: await collect(answered(healthy)) });
  expect(free(before)).toEqual([GPU0, GPU1]);
  const after = await review(before, { gpus: await collect(answered(lost)) });
  expect(device(after, GPU0)).toEqual(device(before, GPU0));
  expect(device(after, GPU1)).toMatchObject({ present: true, bookable: true, health: 'unhealthy' });
  expect(device(after, GPU1)?.attributes).not.toHaveProperty('memory');
  expect(types(after, GPU1)).toEqual(['GpuLost']);
  expect(after.conditions.find((c) => c.subject === GPU1)?.effect).toBe('NoSchedule');
  expect(free(after)).toEqual([GPU0]);
  // As published, the document also says of GPU 0 that remapping a memory row failed: its data stand, it is not sold.
  const published = await review(before, { gpus: await collect(answered(fixture('gpu/smi-gb200-one-gpu-lost.xml'))) });
  expect(device(published, GPU0)).toMatchObject({ health: 'unhealthy', attributes: device(before, GPU0)!.attributes });
});

test('a fan that says ERR! is a word of trouble, not the number 0', () => {
  const s = parseNvidiaSmi(healthy.replace('<fan_speed>N/A', '<fan_speed>ERR!'));
  expect(s.gpus[0]).toMatchObject({ uuid: GPU0, memoryBytes: 196608 * 1024 ** 2, trouble: ['fan_speed: ERR!'] });
  expect(s.gpus[1]?.trouble).toEqual([]);
});

test('the tool fails: the last good reading stays, stale, and nobody books from it', async () => {
  const before = await review(NOTHING, { gpus: await collect(answered(healthy)) });
  for (const answer of [
    answered("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9),
    answered('Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error\n', 255),
    answered('', 0),
    { outcome: 'timeout', stdout: '', stderr: '' } as const,
    { outcome: 'missing', stdout: '', stderr: '' } as const,
  ]) {
    const section = await collect(answer);
    expect(section.gpus).toEqual([]);
    const after = await review(before, { gpus: section });
    expect(after.devices.map((d) => d.stableId)).toEqual(before.devices.map((d) => d.stableId));
    expect(after.devices.filter((d) => d.class === 'gpu').map((d) => [d.present, d.health])).toEqual([
      [true, 'unknown'],
      [true, 'unknown'],
    ]);
    expect(types(after, 'gpus')).toEqual(['InventoryStale']);
    expect(free(after)).toEqual([]);
    // And back, with the first good answer.
    expect(free(await review(after, { gpus: await collect(answered(healthy)) }))).toEqual([GPU0, GPU1]);
  }
});

test('a GPU that is not listed any more is gone, not forgotten', async () => {
  const before = await review(NOTHING, { gpus: await collect(answered(healthy)) });
  const one = parseNvidiaSmi(healthy);
  const after = await review(before, { gpus: { ...one, attached: 1, gpus: one.gpus.slice(0, 1) } });
  expect(device(after, GPU1)).toMatchObject({ present: false, health: 'unhealthy', bookable: true });
  expect(types(after, GPU1)).toEqual(['GpuLost']);
});

test('a fleet of placeholder identities never becomes one machine', async () => {
  const { sets } = JSON.parse(fixture('dmi/dmi-placeholder-sets.json')) as {
    sets: { id: string; product_serial: string; product_uuid: string }[];
  };
  const join = async (uuid: string, serial: string, mac: string) =>
    await review(NOTHING, {
      system: { status: 'ok', problems: [], uuid, serial },
      nics: { status: 'ok', problems: [], nics: [{ name: 'eth0', mac, bus: 'pci' }] },
    });
  const macs = ['3c:ec:ef:00:00:01', '3c:ec:ef:00:00:02'] as const;
  const spellings = (uuid: string) => [uuid, uuid.toUpperCase(), `  ${uuid.toUpperCase()} `];
  for (const set of sets.filter((s) => s.id !== 'smc-uuid-from-nic')) {
    for (const uuid of spellings(set.product_uuid)) {
      for (const serial of [
        set.product_serial,
        set.product_serial.toUpperCase(),
        ` ${set.product_serial}  `,
        '          ',
      ]) {
        const [a, b] = [await join(uuid, serial, macs[0]), await join(uuid, serial, macs[1])];
        expect([a.hardwareKey.trusted, b.hardwareKey.trusted], set.id).toEqual([false, false]);
        expect(a.hardwareKey.key).not.toBe(b.hardwareKey.key);
        expect(types(a, '')).toContain('HardwareKeyUntrusted');
      }
    }
  }
  // The UUID that firmware makes from a MAC is that MAC again; with a serial number there are two.
  const smc = sets.find((s) => s.id === 'smc-uuid-from-nic')!;
  expect((await join(smc.product_uuid, 'None', '02:00:00:00:00:01')).hardwareKey).toMatchObject({
    trusted: false,
    used: [{ kind: 'mac', value: '020000000001' }],
  });
  expect((await join(smc.product_uuid, smc.product_serial, '02:00:00:00:00:01')).hardwareKey.trusted).toBe(true);
});

const migList = (generation: string) =>
  [
    `GPU 0: NVIDIA A100-SXM4-80GB (UUID: ${GPU0})`,
    ...[0, 1, 2, 3].map((i) => `  MIG 1g.20gb     Device  ${i}: (UUID: MIG-${generation}-${i})`),
  ].join('\n');
const a100 = fixture('gpu/smi-a100-sxm4-80gb-mig-on.xml').replace('<attached_gpus>4', '<attached_gpus>1');
const withoutInstances = a100.replace(/<mig_devices>[\s\S]*<\/mig_devices>/, '<mig_devices>None</mig_devices>');

test('MIG layout gone after a reboot: its atoms leave, nothing takes their place, new ones are new', async () => {
  const first = await review(NOTHING, { gpus: await collect(answered(a100), migList('aaaa')) });
  expect(free(first)).toEqual([0, 1, 2, 3].map((i) => `MIG-aaaa-${i}`));
  expect(device(first, GPU0)?.bookable).toBe(false);

  const rebooted = await review(first, { gpus: await collect(answered(withoutInstances)) });
  expect(free(rebooted)).toEqual([]);
  expect(device(rebooted, GPU0)?.bookable).toBe(false);
  expect(types(rebooted, GPU0)).toEqual(['MigLayoutMissing']);
  // The rows stay, so a booking on one of them stays too, with a condition that says why it is of no use.
  expect(device(rebooted, 'MIG-aaaa-0')).toMatchObject({ present: false, bookable: false });
  expect(types(rebooted, 'MIG-aaaa-0')).toEqual(['DeviceMissing']);

  const again = await review(rebooted, { gpus: await collect(answered(a100), migList('bbbb')) });
  expect(free(again)).toEqual([0, 1, 2, 3].map((i) => `MIG-bbbb-${i}`));
  expect(device(again, 'MIG-aaaa-0')).toMatchObject({ present: false, bookable: false });
  expect(types(again, GPU0)).toEqual([]);
});

test('MIG instances without a UUID are no atoms; a pending mode change blocks the parent', async () => {
  const nameless = await review(NOTHING, { gpus: await collect(answered(a100)) });
  expect(free(nameless)).toEqual([]);
  expect(types(nameless, GPU0)).toEqual(['MigIdentityMissing']);
  const pending = withoutInstances.replace('<current_mig>Enabled', '<current_mig>Disabled');
  const soon = await review(NOTHING, { gpus: await collect(answered(pending)) });
  expect(free(soon)).toEqual([]);
  expect(types(soon, GPU0)).toEqual(['MigModePending']);
});

test('header counts four, one is described: a mismatch, not three lost GPUs', async () => {
  const r = await review(NOTHING, {
    gpus: await collect(answered(fixture('gpu/smi-a100-sxm4-80gb-mig-on.xml')), migList('aaaa')),
  });
  expect(r.devices.filter((d) => d.class === 'gpu')).toHaveLength(1);
  expect(types(r, '')).toContain('GpuCountMismatch');
  expect(r.conditions.some((c) => c.type === 'GpuLost')).toBe(false);
});

const xid = (code: number, at: string, id = `boot:${code}`): GpuXid => ({ id, pciAddress: '0000:0a:00.0', code, at });
const withXids = (...xids: GpuXid[]) => ({ gpus: { ...parseNvidiaSmi(healthy), xids } });

test('a transient fault clears by itself after ten clean minutes', async () => {
  const struck = await review(NOTHING, withXids(xid(31, NOW)));
  expect(types(struck, GPU0)).toEqual(['GpuFaultTransient']);
  expect(free(struck)).toEqual([GPU1]);
  expect(struck.recheckAt).toBe(addSeconds(NOW, 600));
  const soon = await review(struck, {}, addSeconds(NOW, 599));
  expect(free(soon)).toEqual([GPU1]);
  const later = await review(soon, {}, addSeconds(NOW, 600));
  expect(free(later)).toEqual([GPU0, GPU1]);
  // Another one within the period starts it anew.
  const second = await review(
    struck,
    withXids(xid(31, NOW), xid(31, addSeconds(NOW, 300), 'boot:2')),
    addSeconds(NOW, 600),
  );
  expect(free(second)).toEqual([GPU1]);
});

test('a fatal fault outlives the daemon and the log, until a reset with a passed check', async () => {
  const struck = await review(NOTHING, withXids(xid(79, NOW)));
  expect(types(struck, GPU0)).toEqual(['GpuFaultFatal']);
  const restarted = await review(struck, withXids(), addSeconds(NOW, 86_400));
  expect(types(restarted, GPU0)).toEqual(['GpuFaultFatal']);
  expect(free(restarted)).toEqual([GPU1]);
  const cleared = await review(
    restarted,
    withXids(xid(79, NOW)),
    addSeconds(NOW, 86_401),
    new Map([[GPU0, addSeconds(NOW, 86_400)]]),
  );
  expect(free(cleared)).toEqual([GPU0, GPU1]);
  // A code nobody knows is no proof of health.
  expect(types(await review(NOTHING, withXids(xid(777, NOW))), GPU0)).toEqual(['GpuFaultFatal']);
});

test('health that could not be read is not health', async () => {
  const unread = await review(NOTHING, {
    gpus: await collect(answered('Failed to initialize NVML: Unknown Error\n', 255)),
  });
  expect(free(unread)).toEqual([]);
  expect(types(unread, 'gpus')).toEqual(['InventoryStale']);
  const known = await review(NOTHING, { gpus: parseNvidiaSmi(healthy) });
  expect(free(await review(known, { gpus: await collect(answered('', 255)) }))).toEqual([]);
});

test('an unlicensed vGPU is not sold, and its UUID identifies no machine', async () => {
  const r = await review(NOTHING, { gpus: await collect(answered(fixture('gpu/smi-vgpu-guest-constructed.xml'))) });
  expect(free(r)).toEqual([]);
  expect(r.hardwareKey.used).toEqual([]);
});

test('reviewing the same again changes nothing', async () => {
  const first = await review(NOTHING, withXids(xid(79, NOW)));
  const second = await review(first, first.sections);
  expect(second).toEqual(first);
});
