import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fromMillis, toMillis } from '../kernel/time.ts';
import { meterOf, nextReading, usageWindows } from './windows.ts';

test('cuts at the hours, counts devices, seals what is over', () => {
  const windows = usageWindows({
    from: '2026-12-01T10:30:00.000Z',
    to: '2026-12-01T12:00:30.000Z',
    ended: false,
    devices: { 'gpu.h100.hours': 3 },
  });
  expect(windows).toEqual([
    { hour: '2026-12-01T10:00:00.000Z', meter: 'gpu.h100.hours', deviceSeconds: 5400, sealed: true },
    { hour: '2026-12-01T11:00:00.000Z', meter: 'gpu.h100.hours', deviceSeconds: 10800, sealed: true },
    { hour: '2026-12-01T12:00:00.000Z', meter: 'gpu.h100.hours', deviceSeconds: 90, sealed: false },
  ]);
});

test('the windows add up to the holding, however it is cut', () => {
  const start = toMillis('2026-12-01T00:00:00Z');
  fc.assert(
    fc.property(fc.nat(200_000_000), fc.nat(200_000_000), (offset, length) => {
      const [from, to] = [start + offset, start + offset + length];
      const windows = usageWindows({ from: fromMillis(from), to: fromMillis(to), ended: true, devices: { m: 2 } });
      const sum = windows.reduce((a, w) => a + w.deviceSeconds, 0);
      expect(sum).toBe(2 * (Math.floor(to / 1000) - Math.floor(from / 1000)));
      expect(windows.every((w) => w.sealed && w.deviceSeconds >= 0 && w.deviceSeconds <= 7200)).toBe(true);
      expect(new Set(windows.map((w) => w.hour)).size).toBe(windows.length);
    }),
  );
});

test('meters are named by class and model', () => {
  expect(meterOf('gpu', 'H100')).toBe('gpu.h100.hours');
  expect(meterOf('gpu', undefined)).toBe('gpu.hours');
  expect(meterOf('disk', 'H100')).toBe('disk.hours');
});

test('reads a short holding soon and a long one rarely', () => {
  const from = '2026-12-01T10:00:00.000Z';
  expect(nextReading(from, from)).toBe('2026-12-01T10:00:05.000Z');
  expect(nextReading(from, '2026-12-01T10:01:00.000Z')).toBe('2026-12-01T10:02:00.000Z');
  expect(nextReading(from, '2026-12-02T10:00:00.000Z')).toBe('2026-12-02T10:05:00.000Z');
});
