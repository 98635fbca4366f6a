import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type HardwareIdentifiers, hardwareKey, isPlaceholder } from './hardware-key.ts';

const MAC = '3c:ec:ef:12:34:56';
const OTHER_MAC = '3c:ec:ef:65:43:21';
const UUID = '4c4c4544-0043-3510-8052-b4c04f4e4d31';
const GPU = 'GPU-5c1ea0b2-1234-4000-8000-000000000001';
const ids = (over: Partial<HardwareIdentifiers>): HardwareIdentifiers => ({ macs: [], gpuUuids: [], ...over });
const key = (over: Partial<HardwareIdentifiers>) => hardwareKey(ids(over));

test('spelling does not matter, order does not matter, identity does', async () => {
  const a = await key({ productUuid: UUID, serial: 'ABC123X', macs: [MAC, OTHER_MAC], gpuUuids: [GPU] });
  const b = await key({
    productUuid: `  ${UUID.toUpperCase()} `,
    serial: ' abc123x\n',
    macs: [OTHER_MAC.toUpperCase().replaceAll(':', '-'), MAC],
    gpuUuids: [GPU.toLowerCase()],
  });
  expect(b.key).toBe(a.key);
  expect(a.trusted).toBe(true);
  expect((await key({ productUuid: UUID, serial: 'ABC123Y', macs: [MAC, OTHER_MAC], gpuUuids: [GPU] })).key).not.toBe(
    a.key,
  );
});

test('two kinds are needed: many ports, or many GPUs, are one kind', async () => {
  expect((await key({ macs: [MAC, OTHER_MAC] })).trusted).toBe(false);
  expect((await key({ macs: [MAC], gpuUuids: [GPU] })).trusted).toBe(true);
  expect((await key({ macs: [MAC], serial: 'ABC123X' })).trusted).toBe(true);
  expect((await key({})).trusted).toBe(false);
});

test('a UUID made from a MAC counts with that MAC', async () => {
  const tail = MAC.replaceAll(':', '');
  for (const productUuid of [`00000000-0000-0000-0000-${tail}`, `a1b2c3d4-0000-11ee-8000-${tail}`]) {
    expect((await key({ productUuid, macs: [MAC] })).trusted, productUuid).toBe(false);
  }
  // The port was switched off: its MAC shows in the UUID alone, and still is no second witness.
  expect((await key({ productUuid: `00000000-0000-0000-0000-${tail}`, macs: [OTHER_MAC] })).trusted).toBe(false);
  expect((await key({ productUuid: UUID, macs: [MAC] })).trusted).toBe(true);
});

test('placeholders are named as such', async () => {
  for (const text of [
    'To Be Filled By O.E.M.',
    '  ',
    'NONE',
    '0',
    '00000000',
    'System Serial Number',
    '0123456789',
    'xxxxxxx',
    '..',
  ]) {
    expect(isPlaceholder(text), text).toBe(true);
  }
  for (const text of ['SAMPLE000001', 'C02X1234', '5CD0123ABC']) expect(isPlaceholder(text), text).toBe(false);
  const k = await key({
    productUuid: '03000200-0400-0500-0006-000700080009',
    serial: 'Default string',
    macs: ['ff:ff:ff:ff:ff:ff', MAC],
  });
  expect(k.rejected.map((r) => [r.kind, r.why])).toEqual([
    ['mac', 'one byte repeated'],
    ['serial', 'a placeholder'],
    ['uuid', 'a known placeholder'],
  ]);
});

test('never throws, and never trusts fewer than two kinds', async () => {
  const text = fc.string({ maxLength: 40, unit: 'binary' });
  await fc.assert(
    fc.asyncProperty(
      fc.option(text, { nil: undefined }),
      fc.option(text, { nil: undefined }),
      fc.array(text),
      fc.array(text),
      async (productUuid, serial, macs, gpuUuids) => {
        const k = await hardwareKey({
          ...(productUuid === undefined ? {} : { productUuid }),
          ...(serial === undefined ? {} : { serial }),
          macs,
          gpuUuids,
        });
        expect(k.key).toMatch(/^[0-9a-f]{64}$/);
        expect(k.trusted).toBe(new Set(k.used.map((u) => u.kind)).size >= 2);
      },
    ),
  );
});
