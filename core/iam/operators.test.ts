import { describe, expect, test } from 'vitest';
import { type Context, globMatches, matches, parseTemplate } from './glob.ts';
import { condition, type OperatorName, parseAddress, parseDate, type Scalar } from './operators.ts';

const holds = (name: OperatorName, listed: Scalar | Scalar[], actual: unknown, context: Context = {}) =>
  condition(name, 'k', [listed].flat())({ ...context, k: actual } as Context, { left: 1e6 });
const v = (key: string) => `$\{${key}}`;

describe('globs', () => {
  test.each([
    ['*', '', true],
    ['a*', 'a/b:c', true],
    ['?', '😀', true],
    ['??', '😀', false],
    ['a?c', 'abc', true],
    ['*:delete', 'compute:nodes:delete', true],
    ['a.c', 'abc', false],
    ['A', 'a', false],
    ['*a*b', 'xxaxxbxxb', true],
    ['', '', true],
    ['', 'a', false],
  ])('%j against %j: %j', (pattern, text, want) => expect(globMatches(pattern, text)).toBe(want));

  test('a substituted value is literal, lists and missing keys never match', () => {
    const ask = (context: Context) => matches(parseTemplate(`n/${v('x')}-*`), 'n/bob-1', context, { left: 1000 });
    expect(ask({ x: 'bob' })).toBe(true);
    expect(ask({ x: '*' })).toBe(false);
    expect(ask({ x: ['bob'] })).toBe(false);
    expect(ask({})).toBe(false);
    expect(matches(parseTemplate(`n/${v('constructor')}`), 'n/x', {}, { left: 1000 })).toBe(false);
  });
});

describe('operators', () => {
  test.each<[OperatorName, Scalar | Scalar[], unknown, boolean]>([
    ['StringEquals', ['a', 'b'], 'b', true],
    ['StringEquals', 'a', ['a'], false],
    ['StringNotEquals', ['a', 'b'], 'b', false],
    ['StringNotEquals', ['a', 'b'], 'c', true],
    ['StringNotEquals', 'a', undefined, false],
    ['StringNotEquals', 'a', 1, false],
    ['StringEqualsIgnoreCase', 'ABC', 'abc', true],
    ['StringNotEqualsIgnoreCase', 'ABC', 'abc', false],
    ['StringLike', 'h?00', 'h100', true],
    ['StringNotLike', ['h*', 'a*'], 'b200', true],
    ['StringLikeIgnoreCase', 'H*', 'h100', true],
    ['Bool', true, true, true],
    ['Bool', true, 'true', false],
    ['NumericEquals', 8, '8', false],
    ['NumericNotEquals', 8, '9', false],
    ['NumericNotEquals', [8, 9], 10, true],
    ['NumericLessThan', 8, 8, false],
    ['NumericLessThanEquals', 8, 8, true],
    ['NumericGreaterThan', 8, 8.5, true],
    ['NumericGreaterThanEquals', 8, 7, false],
    ['DateBefore', '2026-12-01T00:00:00+01:00', '2026-11-30T22:59:59.999Z', true],
    ['DateAfter', '2026-12-01T00:00:00Z', '2026-12-01T00:00:00Z', false],
    ['IpAddress', '203.0.113.0/24', '::ffff:203.0.113.9', true],
    ['IpAddress', '::ffff:203.0.113.0/120', '203.0.113.9', true],
    ['IpAddress', '0.0.0.0/0', '2001:db8::1', false],
    ['IpAddress', '2001:db8::/32', '2001:DB8:0:0::1', true],
    ['NotIpAddress', '10.0.0.0/8', 'nonsense', false],
    ['NotIpAddress', '10.0.0.0/8', '192.0.2.1', true],
    ['ArrayContains', ['x', 'y'], ['y'], true],
    ['ArrayContains', '1', [1], false],
    ['ArrayContains', 'y', 'y', false],
    ['ArrayContainsAll', ['x', 'y'], ['y', 'z', 'x'], true],
    ['ArrayContainsAll', ['x', 'y'], ['y'], false],
    ['Exists', false, undefined, true],
    ['Exists', true, undefined, false],
    ['Exists', true, '', true],
  ])('%s %j on %j: %j', (name, listed, actual, want) => expect(holds(name, listed, actual)).toBe(want));

  test('an unresolved variable makes the negation true', () => {
    expect(holds('StringNotEquals', v('gone'), 'a')).toBe(true);
    expect(holds('StringEquals', v('gone'), 'a')).toBe(false);
  });

  test('StringLikeIgnoreCase lowers values, and loses variables whose name has capitals', () => {
    expect(holds('StringLikeIgnoreCase', `${v('team')}-*`, 'ML-a', { team: 'Ml' })).toBe(true);
    expect(holds('StringLikeIgnoreCase', `${v('Team')}-*`, 'ml-a', { Team: 'ml' })).toBe(false);
  });

  test.each([
    '2026-02-29T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-01-01T24:00:00Z',
    '2026-01-01',
    '2026-01-01T00:00:00.1234Z',
    'x',
  ])('%s is no date', (text) => expect(parseDate(text)).toBeUndefined());
  test('29 February of a leap year is one', () => expect(parseDate('2028-02-29T00:00:00Z')).toBeDefined());

  test.each([
    '1.2.3',
    '01.2.3.4',
    '1.2.3.256',
    '0x1.2.3.4',
    '[::1]',
    'fe80::1%eth0',
    '::1::',
    '1:2:3:4:5:6:7',
    '::1.2.3',
    '',
  ])('%s is no address', (text) => expect(parseAddress(text)).toBeUndefined());
  test.each([
    '::',
    '::1',
    '1:2:3:4:5:6:7:8',
    '::1.2.3.4',
    '1:2:3:4:5:6:1.2.3.4',
    '64:ff9b::1.2.3.4',
    '1::2:1.2.3.4',
    '0.0.0.0',
  ])('%s is an address', (text) => expect(parseAddress(text)).toBeDefined());
});
