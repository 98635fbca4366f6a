/**
 * Laws of the evaluator, and a differential run against a second one written another way: regular expressions for
 * globs, big integers for addresses, sets of effects for the combination. Both read the same documents; they must never
 * disagree.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { evaluate } from './evaluate.ts';
import type { Context, ContextValue } from './glob.ts';
import { OPERATORS, type OperatorName, type Scalar } from './operators.ts';
import { type PolicyDocument, parsePolicy, type Statement } from './policy.ts';

// --- The second evaluator ---------------------------------------------------------------------------------------------

const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_.:-]{0,127})\}/u;
const quoted = (s: string) => s.replace(/[\\^$.*+?()[\]{}|/]/gu, '\\$&');

function regex(pattern: string, context: Context, lower: boolean): RegExp | null {
  let source = '';
  let rest = pattern;
  for (;;) {
    const variable = VARIABLE.exec(rest);
    const literal = variable === null ? rest : rest.slice(0, variable.index);
    source += [...literal].map((c) => (c === '*' ? '[^]*' : c === '?' ? '[^]' : quoted(c))).join('');
    if (variable === null) break;
    const value = Object.hasOwn(context, variable[1]!) ? context[variable[1]!] : undefined;
    if (value === undefined || Array.isArray(value)) return null;
    source += quoted(lower ? String(value).toLowerCase() : String(value));
    rest = rest.slice(variable.index + variable[0].length);
  }
  return new RegExp(`^${source}$`, 'u');
}

function filled(pattern: string, context: Context): string | null {
  let missing = false;
  const text = pattern.replace(new RegExp(VARIABLE, 'gu'), (_, key: string) => {
    const value = Object.hasOwn(context, key) ? context[key] : undefined;
    if (value === undefined || Array.isArray(value)) missing = true;
    return String(value);
  });
  return missing ? null : text;
}

function bits(text: string): { width: number; n: bigint } | null {
  const quad = (s: string): bigint | null => {
    const parts = s.split('.');
    if (parts.length !== 4) return null;
    let n = 0n;
    for (const p of parts) {
      if (String(Number(p)) !== p || Number(p) > 255 || Number(p) < 0) return null;
      n = n * 256n + BigInt(p);
    }
    return n;
  };
  if (!text.includes(':')) {
    const n = quad(text);
    return n === null ? null : { width: 32, n };
  }
  let all = text;
  const dotted = /^(.*:)([\d.]*\.[\d.]*)$/u.exec(text);
  if (dotted !== null) {
    const n = quad(dotted[2]!);
    if (n === null) return null;
    all = `${dotted[1]}${(n >> 16n).toString(16)}:${(n & 0xffffn).toString(16)}`;
  }
  const sides = all.split('::');
  if (sides.length > 2) return null;
  const groups = sides.map((s) => (s === '' ? [] : s.split(':')));
  if (groups.flat().some((g) => !/^[0-9a-f]{1,4}$/iu.test(g))) return null;
  const count = groups.flat().length;
  if (sides.length === 1 ? count !== 8 : count > 7) return null;
  const middle = sides.length === 1 ? [] : Array.from({ length: 8 - count }, () => '0');
  const list = [...groups[0]!, ...middle, ...(groups[1] ?? [])];
  return { width: 128, n: list.reduce((n, g) => n * 65536n + BigInt(`0x${g}`), 0n) };
}

function within(actual: string, network: string): boolean {
  const [base, length] = network.split('/') as [string, string?];
  let a = bits(actual);
  let b = bits(base);
  if (a === null || b === null) return false;
  let free = b.width - (length === undefined ? b.width : Number(length));
  const four = (x: { width: number; n: bigint }) =>
    x.width === 128 && x.n >> 32n === 0xffffn ? { width: 32, n: x.n & 0xffffffffn } : null;
  if (a.width === 128 && b.width === 32) a = four(a);
  else if (a.width === 32 && b.width === 128) {
    b = four(b);
    if (free > 32) return false;
  }
  if (a === null || b === null) return false;
  free = Math.min(free, 128);
  return a.n >> BigInt(free) === b.n >> BigInt(free);
}

function instant(text: unknown): number | null {
  if (typeof text !== 'string') return null;
  const m = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,3})?(Z|[+-]\d\d:\d\d)$/u.exec(text);
  if (m === null) return null;
  const plain = Date.parse(`${m[1]}Z`);
  // A date that was silently moved on prints differently.
  if (Number.isNaN(plain) || new Date(plain).toISOString().slice(0, 19) !== m[1]) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}

function one(operator: string, actual: ContextValue, wanted: Scalar, context: Context): boolean | null {
  const str = typeof actual === 'string';
  const num = typeof actual === 'number' && Number.isFinite(actual);
  const n = actual as number;
  switch (operator) {
    case 'StringEquals':
      return str ? actual === filled(wanted as string, context) : null;
    case 'StringEqualsIgnoreCase':
      return str ? actual.toLowerCase() === filled(wanted as string, context)?.toLowerCase() : null;
    case 'StringLike':
      return str ? regex(wanted as string, context, false)?.test(actual) === true : null;
    case 'StringLikeIgnoreCase':
      return str ? regex((wanted as string).toLowerCase(), context, true)?.test(actual.toLowerCase()) === true : null;
    case 'Bool':
      return typeof actual === 'boolean' ? actual === wanted : null;
    case 'NumericEquals':
      return num ? n === wanted : null;
    case 'NumericLessThan':
      return num ? n < (wanted as number) : null;
    case 'NumericLessThanEquals':
      return num ? n <= (wanted as number) : null;
    case 'NumericGreaterThan':
      return num ? n > (wanted as number) : null;
    case 'NumericGreaterThanEquals':
      return num ? n >= (wanted as number) : null;
    case 'DateBefore':
    case 'DateAfter': {
      const [a, b] = [instant(actual), instant(wanted)];
      if (a === null || b === null) return null;
      return operator === 'DateBefore' ? a < b : a > b;
    }
    case 'IpAddress':
      return str && bits(actual) !== null ? within(actual, wanted as string) : null;
    case 'ArrayContains': {
      if (!Array.isArray(actual)) return null;
      const member = typeof wanted === 'string' ? filled(wanted, context) : wanted;
      return member !== null && actual.some((x) => x === member);
    }
  }
  throw new Error(operator);
}

function conditionHolds(operator: string, key: string, listed: Scalar[], context: Context): boolean {
  const actual = Object.hasOwn(context, key) ? context[key] : undefined;
  if (operator === 'Exists') return listed.some((want) => want === (actual !== undefined));
  if (actual === undefined) return false;
  const negative = operator.includes('Not');
  const all = negative || operator === 'ArrayContainsAll';
  const positive = operator === 'ArrayContainsAll' ? 'ArrayContains' : operator.replace('Not', '');
  const results = listed.map((want) => {
    const result = one(positive, actual, want, context);
    return result === null ? false : result !== negative;
  });
  return all ? !results.includes(false) : results.includes(true);
}

function second(
  action: string,
  resource: string,
  context: Context,
  grants: PolicyDocument[],
  boundaries: PolicyDocument[],
) {
  const effects = (d: PolicyDocument) =>
    new Set(
      d.statements
        .filter((s) => s.actions.some((p) => new RegExp(regex(p, {}, false)!).test(action)))
        .filter((s) => s.resources.some((p) => regex(p, context, false)?.test(resource) === true))
        .filter((s) =>
          Object.entries(s.conditions ?? {}).every(([operator, keys]) =>
            Object.entries(keys ?? {}).every(([key, listed]) =>
              conditionHolds(operator, key, [listed].flat() as Scalar[], context),
            ),
          ),
        )
        .map((s) => s.effect),
    );
  const [g, b] = [grants.map(effects), boundaries.map(effects)];
  if ([...g, ...b].some((e) => e.has('deny'))) return 'explicit-deny';
  if (!g.some((e) => e.has('allow'))) return 'no-grant';
  return b.every((e) => e.has('allow')) ? 'allowed' : 'boundary-deny';
}

// --- What is tried ----------------------------------------------------------------------------------------------------

const v = (key: string) => `$\{${key}}`;
const KEYS = ['principal.id', 'principal.groups', 'resource.gpus', 'request.time', 'request.sourceIp', 'Case', 'gone'];
const texts = fc.oneof(
  fc.constantFrom('a', 'A', 'ab', 'b', '*', '?', 'a*', '', '😀', 'a.b', '2026-02-28T00:00:00Z', '2026-02-30T00:00:00Z'),
  fc.constantFrom(
    '10.1.2.3',
    '::ffff:10.1.2.3',
    '::ffff:a01:203',
    '2001:db8::1',
    '::',
    '10.01.2.3',
    '::1.2.3',
    '1:2:3:4:5:6:7::',
  ),
  fc.string({ unit: fc.constantFrom('a', 'b', ':', '/', '*', '?', '.'), maxLength: 5 }),
);
const patterns = fc
  .array(fc.oneof(texts, fc.constantFrom('*', '?'), fc.constantFrom(...KEYS).map(v)), { maxLength: 3 })
  .map((parts) => parts.join(''));
const scalars: fc.Arbitrary<Scalar> = fc.oneof(texts, fc.constantFrom(0, 1, 8, 8.5, -1), fc.boolean());
const contexts: fc.Arbitrary<Context> = fc.dictionary(
  fc.constantFrom(...KEYS),
  fc.oneof(scalars, fc.array(scalars, { maxLength: 3 }), fc.constant(undefined)),
  { noNullPrototype: true },
);
const numbers = fc.constantFrom(0, 1, 8, 8.5, -1);
function valuesFor(operator: OperatorName): fc.Arbitrary<Scalar> {
  if (operator === 'Bool' || operator === 'Exists') return fc.boolean();
  if (operator.startsWith('Numeric')) return numbers;
  if (operator.startsWith('Date'))
    return fc.constantFrom('2026-02-28T00:00:00Z', '2026-03-01T01:00:00+01:00', '2025-01-01T00:00:00.5Z');
  if (operator.includes('IpAddress')) {
    return fc.constantFrom(
      '10.0.0.0/8',
      '10.1.2.3',
      '::/0',
      '0.0.0.0/0',
      '::ffff:10.0.0.0/104',
      '::ffff:0:0/90',
      '2001:db8::/32',
    );
  }
  if (operator.startsWith('Array')) return fc.oneof(patterns, numbers, fc.boolean());
  return patterns;
}
const conditions = fc
  .constantFrom(...(Object.keys(OPERATORS) as OperatorName[]))
  .chain((operator) =>
    fc
      .tuple(
        fc.constantFrom(...KEYS),
        fc.oneof(valuesFor(operator), fc.array(valuesFor(operator), { minLength: 1, maxLength: 3 })),
      )
      .map(([key, value]) => ({ [operator]: { [key]: value } }) as Statement['conditions']),
  );
const statements: fc.Arbitrary<Statement> = fc.record(
  {
    effect: fc.constantFrom<'allow' | 'deny'>('allow', 'allow', 'deny'),
    actions: fc.array(fc.constantFrom('*', 'c:n:read', 'c:*', '*:read', 'c:n:r?ad', 'c:x'), {
      minLength: 1,
      maxLength: 2,
    }),
    resources: fc.array(
      fc.oneof(
        fc.constant('*'),
        patterns.map((p) => `n/${p}`),
      ),
      { minLength: 1, maxLength: 2 },
    ),
    conditions,
  },
  { requiredKeys: ['effect', 'actions', 'resources'] },
);
const documents = fc
  .array(statements, { maxLength: 4 })
  .map((list): PolicyDocument => parsePolicy({ version: 1, statements: list }));
const cases = fc.record({
  action: fc.constantFrom('c:n:read', 'c:n:write', 'c:x'),
  resource: texts.map((t) => `n/${t}`),
  context: contexts,
  grants: fc.array(documents, { maxLength: 3 }),
  boundaries: fc.array(documents, { maxLength: 2 }),
});

const RUNS = { numRuns: 3000 };

test('two evaluators never disagree', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(cases, (c) => {
      const found = evaluate(c, c.grants, c.boundaries);
      seen.add(found.reason);
      expect(found.reason).toBe(second(c.action, c.resource, c.context, c.grants, c.boundaries));
    }),
    { numRuns: 10_000 },
  );
  // The run is worth something only if every answer came up.
  expect([...seen].sort()).toEqual(['allowed', 'boundary-deny', 'explicit-deny', 'no-grant']);
});

describe('laws', () => {
  test('one more deny never allows', () => {
    fc.assert(
      fc.property(cases, statements, (c, s) => {
        const deny: PolicyDocument = { version: 1, statements: [{ ...s, effect: 'deny' }] };
        if (!evaluate(c, c.grants, c.boundaries).allowed) {
          expect(evaluate(c, [...c.grants, deny], c.boundaries).allowed).toBe(false);
        }
      }),
      RUNS,
    );
  });

  test('one more boundary never allows', () => {
    fc.assert(
      fc.property(cases, documents, (c, boundary) => {
        if (!evaluate(c, c.grants, c.boundaries).allowed) {
          expect(evaluate(c, c.grants, [...c.boundaries, boundary]).allowed).toBe(false);
        }
      }),
      RUNS,
    );
  });

  test('order does not matter', () => {
    const turned = (d: PolicyDocument): PolicyDocument => ({ version: 1, statements: [...d.statements].reverse() });
    fc.assert(
      fc.property(cases, (c) => {
        const other = evaluate(c, [...c.grants].reverse().map(turned), [...c.boundaries].reverse().map(turned));
        expect(other.reason).toBe(evaluate(c, c.grants, c.boundaries).reason);
      }),
      RUNS,
    );
  });

  test('a substituted value matches itself and nothing wider', () => {
    fc.assert(
      fc.property(texts, texts, (value, asked) => {
        const grant = parsePolicy({
          version: 1,
          statements: [{ effect: 'allow', actions: ['*'], resources: [`n/${v('x')}`] }],
        });
        const q = { action: 'c:x', resource: `n/${asked}`, context: { x: value } };
        expect(evaluate(q, [grant]).allowed).toBe(value === asked);
      }),
      RUNS,
    );
  });
});
