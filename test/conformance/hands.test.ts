/** What the daemon's core relies on, held against both sets of hands: the machine that runs this, and a fake one. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { convergeCdi } from '#bcd/convergers/cdi.ts';
import { FakeHands } from '#bcd/hands/fake/hands.ts';
import type { Hands } from '#bcd/hands/hands.ts';
import { LinuxHands } from '#bcd/hands/linux/hands.ts';
import { changedSections, hashSections, parseInventory } from '#core/inventory/inventory.ts';
import { reviewInventory } from '#core/inventory/review.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
import type { SpecAllocation } from '#core/nodes/spec.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'bcd-hands-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const kinds: readonly [string, (cdiDirectory: string) => Hands][] = [
  ['linux', (cdiDirectory) => new LinuxHands({ cdiDirectory })],
  ['fake', (cdiDirectory) => new FakeHands({ number: 7, clock: systemClock, cdiDirectory })],
  ['fake in memory', () => new FakeHands({ number: 7, clock: systemClock })],
];

describe.each(kinds)('%s hands', (_, make) => {
  test('an inventory fits the schema and reads the same twice', async () => {
    const hands = make(join(directory, 'cdi'));
    const first = await hands.collectInventory();
    expect(parseInventory(JSON.parse(JSON.stringify(first)))).toEqual(first);
    const acknowledged = await hashSections(first.sections);
    expect((await changedSections(await hands.collectInventory(), acknowledged)).map((s) => s.name)).toEqual([]);
  });

  test('the review of it has a node, no device twice, and no health without a reading', async () => {
    const { sections } = await make(join(directory, 'cdi')).collectInventory();
    const { devices, hardwareKey } = await reviewInventory({
      known: {},
      incoming: sections,
      devices: [],
      faults: [],
      poolClass: 'metal-host',
      now: fromMillis(systemClock.now()),
    });
    expect(devices.filter((d) => d.class === 'node')).toHaveLength(1);
    const names = devices.map((d) => `${d.class} ${d.stableId}`);
    expect(new Set(names).size).toBe(names.length);
    expect(hardwareKey.key).toMatch(/^[0-9a-f]{64}$/);
  });

  test('boot id and host name stand still', async () => {
    const hands = make(join(directory, 'cdi'));
    expect(await hands.bootId()).toBe(await hands.bootId());
    expect(await hands.hostname()).toMatch(/\S/);
  });

  test('an abort ends a reading', async () => {
    await expect(make(directory).collectInventory(AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough');
  });

  test('CDI files: written whole, listed, replaced, removed twice, and no others', async () => {
    const { cdi } = make(join(directory, 'not', 'there', 'yet'));
    expect(await cdi.list()).toEqual(new Map());
    await cdi.remove('bettercompute-alc_1.json');
    await cdi.write('bettercompute-alc_1.json', 'one');
    await cdi.write('bettercompute-alc_1.json', 'two');
    await cdi.write('bettercompute-alc_2.gpu.json', 'three');
    expect([...(await cdi.list())]).toEqual([
      ['bettercompute-alc_1.json', 'two'],
      ['bettercompute-alc_2.gpu.json', 'three'],
    ]);
    await cdi.remove('bettercompute-alc_1.json');
    await cdi.remove('bettercompute-alc_1.json');
    expect([...(await cdi.list()).keys()]).toEqual(['bettercompute-alc_2.gpu.json']);
    for (const foreign of ['nvidia.yaml', '../bettercompute-x.json', 'bettercompute-a/b.json', 'bettercompute-.JSON']) {
      await expect(cdi.write(foreign, 'x')).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
      await expect(cdi.remove(foreign)).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    }
  });

  test('a node atom is exposed and let go of', async () => {
    const hands = make(join(directory, 'cdi'));
    const { sections } = await hands.collectInventory();
    const allocation: SpecAllocation = {
      allocationId: 'alc_1',
      reservationId: 'rsv_1',
      tenantId: 'tnt_1',
      devices: [{ id: 'dev_1', class: 'node', stableId: 'node' }],
    };
    expect(await convergeCdi(hands.cdi, [allocation], sections)).toMatchObject({
      written: ['bettercompute-alc_1.json'],
      problems: [],
    });
    expect(await convergeCdi(hands.cdi, [], sections)).toMatchObject({ removed: ['bettercompute-alc_1.json'] });
    expect((await hands.cdi.list()).size).toBe(0);
  });
});

describe.each(kinds.slice(0, 2))('%s hands, on a real directory', (_, make) => {
  test('files of others stay, leftovers of a killed writer go, modes are right', async () => {
    writeFileSync(join(directory, 'nvidia.yaml'), 'cdiVersion: 0.6.0\n');
    writeFileSync(join(directory, '.bettercompute-tmp-bettercompute-alc_0.json-aa'), '{"cdiV');
    const { cdi } = make(directory);
    await cdi.write('bettercompute-alc_1.json', 'text');
    await cdi.list();
    expect(readdirSync(directory).sort()).toEqual(['bettercompute-alc_1.json', 'nvidia.yaml']);
    expect(readFileSync(join(directory, 'nvidia.yaml'), 'utf8')).toBe('cdiVersion: 0.6.0\n');
    expect(statSync(join(directory, 'bettercompute-alc_1.json')).mode & 0o777).toBe(0o644);
  });
});

describe('fake hands alone', () => {
  const review = async (hands: FakeHands) =>
    reviewInventory({
      known: {},
      incoming: (await hands.collectInventory()).sections,
      devices: [],
      faults: [],
      poolClass: 'metal-host',
      now: fromMillis(systemClock.now()),
    });
  const free = (r: Awaited<ReturnType<typeof review>>, kind: string) =>
    r.devices.filter((d) => d.class === kind && d.bookable && d.present && d.health === 'healthy').length;

  test('a fleet of them shares nothing, and each is trusted', async () => {
    const seen = new Set<string>();
    const ids = new Set<string>();
    for (const number of [0, 1, 63, 64, 255, 256, 65_535]) {
      const r = await review(new FakeHands({ number, clock: systemClock }));
      expect(r.conditions).toEqual([]);
      expect(r.hardwareKey.trusted).toBe(true);
      expect([free(r, 'gpu'), free(r, 'disk')]).toEqual([8, 4]);
      expect(r.devices.find((d) => d.class === 'gpu')?.attributes).toMatchObject({
        model: 'h100',
        memory: 80 * 1024 ** 3,
      });
      seen.add(r.hardwareKey.key);
      for (const d of r.devices) if (d.class !== 'node') ids.add(d.stableId);
    }
    expect([seen.size, ids.size]).toEqual([7, 7 * 13]);
  });

  test('every fault switch shows', async () => {
    const hands = new FakeHands({ number: 1, clock: systemClock, model: 'b200', gpus: 4 });
    expect(free(await review(hands), 'gpu')).toBe(4);
    hands.faults.lostGpus.add(0);
    expect(free(await review(hands), 'gpu')).toBe(3);
    hands.faults.missingGpus.add(1);
    expect((await review(hands)).conditions.map((c) => c.type)).toEqual(['GpuCountMismatch', 'GpuLost']);
    hands.faults.lostGpus.clear();
    hands.faults.missingGpus.clear();
    hands.raiseXid(2, 79);
    expect((await review(hands)).conditions.map((c) => c.type)).toEqual(['GpuFaultFatal']);
    const boot = await hands.bootId();
    await hands.reboot();
    expect(await hands.bootId()).not.toBe(boot);
    hands.faults.staleInventory = true;
    expect((await hands.collectInventory()).sections.gpus.status).toBe('failed');
    hands.faults.readOnlyCdi = true;
    await expect(hands.cdi.write('bettercompute-a.json', '')).rejects.toThrow(/EROFS/);
    hands.faults.slowMs = 60_000;
    const abort = new AbortController();
    const slow = hands.collectInventory(abort.signal);
    abort.abort(new Error('deadline'));
    await expect(slow).rejects.toThrow('deadline');
  });
});
