import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type CursorScope, openCursor, sealCursor } from './cursor.ts';
import { isProblem } from './errors.ts';

const key = Uint8Array.from({ length: 32 }, (_, i) => i);
const scope: CursorScope = { operation: 'nodes.list', tenantId: 'tnt_a', filter: { order: 'asc', poolId: 'pool_1' } };
const position = { at: '2026-12-01T10:00:00.123456Z', id: 'node_01h2xcejqtf2nbrexx3vqjhp41' };

const refused = async (open: Promise<unknown>) => {
  const error = await open.then(
    () => undefined,
    (e: unknown) => e,
  );
  return isProblem(error) && error.code === 'INVALID_CURSOR';
};

describe('cursors', () => {
  test('give back exactly what was sealed, microseconds included', async () => {
    expect(await openCursor(key, scope, await sealCursor(key, scope, position))).toEqual(position);
  });

  test.each([
    ['another operation', { ...scope, operation: 'devices.list' }],
    ['another tenant', { ...scope, tenantId: 'tnt_b' }],
    ['another filter', { ...scope, filter: { order: 'asc', poolId: 'pool_2' } }],
    ['another order', { ...scope, filter: { order: 'desc', poolId: 'pool_1' } }],
  ])('refuse %s', async (_what, other) => {
    expect(await refused(openCursor(key, other, await sealCursor(key, scope, position)))).toBe(true);
  });

  test('refuse another key, and whatever cannot be one', async () => {
    const sealed = await sealCursor(key, scope, position);
    expect(await refused(openCursor(new Uint8Array(32), scope, sealed))).toBe(true);
    for (const text of ['', '!', 'AAAA', sealed.slice(0, 20), `${sealed}=`, sealed.toUpperCase()]) {
      expect(await refused(openCursor(key, scope, text))).toBe(true);
    }
  });

  test('refuse any single changed character', async () => {
    const sealed = await sealCursor(key, scope, position);
    await fc.assert(
      fc.asyncProperty(fc.nat(sealed.length - 1), fc.constantFrom(...'abcXYZ019_-'), async (at, c) => {
        const changed = sealed.slice(0, at) + c + sealed.slice(at + 1);
        // The last character may carry unused bits: then the bytes are the same, and so is the cursor.
        if (changed === sealed || at === sealed.length - 1) return;
        expect(await refused(openCursor(key, scope, changed))).toBe(true);
      }),
    );
  });
});
