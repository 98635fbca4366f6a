import fc from 'fast-check';
import { beforeEach, expect, test } from 'vitest';
import type { PartialSections } from '#core/inventory/index.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { SpecAllocation } from '#core/nodes/spec.ts';
import { FakeHands } from '../hands/fake/hands.ts';
import { fakeGpuUuid } from '../hands/fake/machine.ts';
import { convergeCdi } from './cdi.ts';
import { bookedIn, type CdiSpec } from './cdi-spec.ts';

let hands: FakeHands;
let sections: PartialSections;
beforeEach(async () => {
  hands = new FakeHands({ number: 3, clock: systemClock });
  ({ sections } = await hands.collectInventory());
});

const gpu = (index: number) => ({ id: `dev_g${index}`, class: 'gpu', stableId: fakeGpuUuid(3, index) });
const disk = (index: number) => ({ id: `dev_d${index}`, class: 'disk', stableId: sections.disks!.disks[index]!.wwn! });
const allocation = (n: number, ...devices: SpecAllocation['devices']): SpecAllocation => ({
  allocationId: `alc_${n}`,
  reservationId: `rsv_${n}`,
  tenantId: 'tnt_1',
  devices,
});
const converge = (...allocations: SpecAllocation[]) => convergeCdi(hands.cdi, allocations, sections);
const spec = async (name: string) => JSON.parse((await hands.cdi.list()).get(name)!) as CdiSpec;

test('a spec names exactly the booked GPUs, with their nodes and no others', async () => {
  await converge(allocation(1, gpu(2), gpu(5)));
  expect(await spec('bettercompute-alc_1.json')).toEqual({
    cdiVersion: '0.8.0',
    kind: 'bettercompute.dev/gpu',
    annotations: {
      'bettercompute.dev/allocation': 'alc_1',
      'bettercompute.dev/reservation': 'rsv_1',
      'bettercompute.dev/tenant': 'tnt_1',
    },
    devices: [2, 5].map((i) => ({
      name: fakeGpuUuid(3, i),
      annotations: { 'bettercompute.dev/device-id': `dev_g${i}`, 'bettercompute.dev/stable-id': fakeGpuUuid(3, i) },
      containerEdits: {
        deviceNodes: [{ path: `/dev/nvidia${i}` }],
        env: [`NVIDIA_VISIBLE_DEVICES=${fakeGpuUuid(3, i)}`],
      },
    })),
    containerEdits: { deviceNodes: [{ path: '/dev/nvidiactl' }, { path: '/dev/nvidia-uvm' }] },
  });
});

test('again is nothing; release removes; classes of one allocation go to files of their own', async () => {
  const both = [allocation(1, gpu(0)), allocation(2, gpu(1), disk(1))];
  expect((await converge(...both)).written).toEqual([
    'bettercompute-alc_1.json',
    'bettercompute-alc_2.disk.json',
    'bettercompute-alc_2.gpu.json',
  ]);
  expect((await spec('bettercompute-alc_2.disk.json')).devices[0]?.containerEdits.deviceNodes).toEqual([
    { path: '/dev/nvme1n1', permissions: 'rw' },
  ]);
  expect(await converge(...both)).toMatchObject({ written: [], removed: [], problems: [] });
  expect((await converge(both[0]!)).removed).toEqual(['bettercompute-alc_2.disk.json', 'bettercompute-alc_2.gpu.json']);
});

test('what cannot be exposed is a problem; the host disk and an unknown GPU get no file', async () => {
  const outcome = await converge(
    allocation(1, disk(0)),
    allocation(2, { id: 'dev_x', class: 'gpu', stableId: 'GPU-unknown' }),
    allocation(3, { id: 'dev_m', class: 'gpu.mig', stableId: 'MIG-1' }),
    allocation(4, gpu(4)),
  );
  expect(outcome.problems.map((p) => [p.allocationId, p.why])).toEqual([
    ['alc_1', 'the host uses the disk: /'],
    ['alc_2', 'the GPU is not in the inventory'],
    ['alc_3', 'devices of class gpu.mig cannot be exposed by this version'],
  ]);
  expect([...(await hands.cdi.list()).keys()]).toEqual(['bettercompute-alc_4.json']);
});

test('a GPU that leaves under a workload keeps its file until it is released; a changed booking does not', async () => {
  await converge(allocation(1, gpu(0), gpu(1)));
  hands.faults.missingGpus.add(1);
  ({ sections } = await hands.collectInventory());
  expect(await converge(allocation(1, gpu(0), gpu(1)))).toMatchObject({
    unchanged: ['bettercompute-alc_1.json'],
    problems: [{ deviceId: 'dev_g1' }],
  });
  expect(await converge(allocation(1, gpu(1)))).toMatchObject({ removed: ['bettercompute-alc_1.json'] });
});

test('files that somebody damaged are written anew', async () => {
  await converge(allocation(1, gpu(0)));
  await hands.cdi.write('bettercompute-alc_1.json', '{"cdiVersion":');
  await hands.cdi.write('bettercompute-alc_9.json', 'stale');
  expect(await converge(allocation(1, gpu(0)))).toMatchObject({
    written: ['bettercompute-alc_1.json'],
    removed: ['bettercompute-alc_9.json'],
  });
});

test('at every step of any history no device is named twice, and at the end exactly the booked ones are', async () => {
  const owners = fc.array(fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }), {
    minLength: 8,
    maxLength: 8,
  });
  await fc.assert(
    fc.asyncProperty(fc.array(owners, { minLength: 1, maxLength: 5 }), async (history) => {
      const machine = new FakeHands({ number: 3, clock: systemClock });
      const named = async () => [...(await machine.cdi.list()).values()].flatMap((text) => bookedIn(text)!);
      const { write, remove } = machine.cdi;
      const checked = async () => expect(new Set(await named()).size).toBe((await named()).length);
      const watched = {
        ...machine.cdi,
        write: async (name: string, text: string) => {
          await write(name, text);
          await checked();
        },
        remove: async (name: string) => {
          await remove(name);
          await checked();
        },
      };
      for (const held of history) {
        const allocations = [1, 2, 3]
          .map((n) => allocation(n, ...held.flatMap((owner, i) => (owner === n ? [gpu(i)] : []))))
          .filter((a) => a.devices.length > 0);
        await convergeCdi(watched, allocations, sections);
        expect((await named()).sort()).toEqual(held.flatMap((owner, i) => (owner === undefined ? [] : [`dev_g${i}`])));
      }
    }),
    { numRuns: 50 },
  );
});
