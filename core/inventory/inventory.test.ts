import { expect, test } from 'vitest';
import { gpuFormFactor, gpuModel } from './gpu-models.ts';
import { changedSections, hashSections, type NodeInventory, parseInventory, parseSection } from './inventory.ts';

const empty = (): NodeInventory =>
  parseInventory({
    version: 1,
    sections: {
      system: { status: 'ok', hostname: 'a' },
      cpu: { status: 'ok' },
      memory: { status: 'ok', totalBytes: 1 },
      disks: { status: 'ok', disks: [] },
      nics: { status: 'ok', nics: [] },
      pci: { status: 'ok', devices: [] },
      gpus: { status: 'absent', gpus: [] },
    },
  });

test('only sections whose hash moved travel', async () => {
  const before = empty();
  const acknowledged = await hashSections(before.sections);
  expect(await changedSections(before, acknowledged)).toEqual([]);
  const after = { ...before, sections: { ...before.sections, memory: { ...before.sections.memory, totalBytes: 2 } } };
  expect((await changedSections(after, acknowledged)).map((s) => s.name)).toEqual(['memory']);
  expect((await changedSections(after, {})).map((s) => s.name)).toHaveLength(7);
});

test('the hash is that of the meaning: member order and unknown members do not count', async () => {
  const a = parseSection('memory', { status: 'ok', totalBytes: 5, dimms: [] });
  const b = parseSection('memory', { later: true, totalBytes: 5, status: 'ok' });
  expect(await hashSections({ memory: a })).toEqual(await hashSections({ memory: b }));
});

test('bad input is refused with the path', () => {
  expect(() => parseSection('gpus', { status: 'ok', gpus: [{ index: -1 }] })).toThrowError(
    expect.objectContaining({
      code: 'INVALID_REQUEST',
      details: { errors: expect.arrayContaining([expect.objectContaining({ field: 'inventory.gpus.gpus.0.index' })]) },
    }),
  );
  expect(() => parseInventory(null)).toThrow(/version 1/);
});

test('model words', () => {
  const cases: [string, string, string | undefined][] = [
    ['NVIDIA H100 80GB HBM3', 'h100', undefined],
    ['NVIDIA A100-SXM4-80GB', 'a100', 'sxm4'],
    ['NVIDIA A100-PCIE-40GB', 'a100', 'pcie'],
    ['NVIDIA H100 NVL', 'h100', 'nvl'],
    ['NVIDIA GB200', 'gb200', undefined],
    ['NVIDIA GH200 480GB', 'gh200', undefined],
    ['Tesla V100-SXM2-16GB', 'v100', 'sxm2'],
    ['NVIDIA A10G', 'a10g', undefined],
    ['NVIDIA L40S', 'l40s', undefined],
    ['NVIDIA GeForce RTX 3080', 'rtx-3080', undefined],
    ['GeForce GT 730', 'gt-730', undefined],
    ['NVIDIA RTX 6000 Ada Generation', 'rtx-6000-ada', undefined],
  ];
  for (const [product, model, formFactor] of cases) {
    expect([gpuModel(product), gpuFormFactor(product)], product).toEqual([model, formFactor]);
  }
  expect(gpuModel('NVIDIA')).toBeUndefined();
});
