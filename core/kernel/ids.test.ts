import { expect, test } from 'vitest';
import { isProblem } from './errors.ts';
import { ID_PREFIXES, type IdKind, idFromBytes, isId, newId, parseId } from './ids.ts';

test('prefixes are distinct: an id tells its kind', () => {
  expect(new Set(Object.values(ID_PREFIXES)).size).toBe(Object.keys(ID_PREFIXES).length);
  for (const kind of Object.keys(ID_PREFIXES) as IdKind[]) {
    const id = newId(kind);
    expect(id).toMatch(new RegExp(`^${ID_PREFIXES[kind]}_[0-7][0-9a-hjkmnp-tv-z]{25}$`));
    for (const other of Object.keys(ID_PREFIXES) as IdKind[]) expect(isId(other, id)).toBe(other === kind);
  }
});

test('a derived id is the same for the same bytes and never passes for a time-ordered one', () => {
  const bytes = Uint8Array.from({ length: 16 }, (_, i) => i * 7);
  expect(idFromBytes('reservation', bytes)).toBe(idFromBytes('reservation', bytes));
  expect(isId('reservation', idFromBytes('reservation', bytes))).toBe(true);
});

test.each([
  '',
  'rsv',
  'rsv_',
  'rsv_short',
  'node_01h2xcejqtf2nbrexx3vqjhp41',
  'rsv_8zzzzzzzzzzzzzzzzzzzzzzzzz',
  7,
  null,
])('refuses %j by naming the field', (value) => {
  try {
    parseId('reservation', value, 'id');
    expect.unreachable();
  } catch (e) {
    expect(isProblem(e) && e.code).toBe('INVALID_REQUEST');
    expect(isProblem(e) && e.details).toMatchObject({ errors: [{ field: 'id' }] });
  }
});
