import { describe, expect, test } from 'vitest';
import { iamCatalog } from './catalog.ts';
import { IamError } from './iam-error.ts';
import { parsePolicy } from './policy.ts';

const catalog = iamCatalog(['compute:nodes:read', 'compute:nodes:drain']);
const ok = { effect: 'allow', actions: ['compute:nodes:read'], resources: ['compute-node/*'] };
const doc = (...statements: unknown[]) => ({ version: 1, statements });
/** A variable as a policy writes it. */
const v = (key: string) => `$\{${key}}`;

function refusal(value: unknown): [string, string] {
  try {
    parsePolicy(value, catalog);
  } catch (e) {
    if (e instanceof IamError) return [e.code, e.message];
    throw e;
  }
  return ['', 'accepted'];
}

test('a plain document is accepted and detached', () => {
  const value = doc(ok);
  const parsed = parsePolicy(value, catalog);
  expect(parsed).toEqual(value);
  expect(parsed.statements[0]).not.toBe(ok);
});

describe('refused at save, with the place', () => {
  test.each<[string, unknown, string, string]>([
    ['version', { version: 2, statements: [] }, 'INVALID_POLICY', 'version'],
    ['unknown field', { ...doc(), note: 'x' }, 'INVALID_POLICY', 'note'],
    ['unknown statement field', doc({ ...ok, principal: '*' }), 'INVALID_POLICY', 'statements[0]'],
    ['129 statements', doc(...Array.from({ length: 129 }, () => ok)), 'INVALID_POLICY', 'statements'],
    ['duplicate sid', doc({ ...ok, sid: 'a' }, { ...ok, sid: 'a' }), 'INVALID_POLICY', 'statements[1].sid'],
    [
      'a 22nd operator',
      doc({ ...ok, conditions: { StringMatches: { 'principal.id': 'x' } } }),
      'INVALID_POLICY',
      'StringMatches',
    ],
    [
      'an inherited name as operator',
      doc({ ...ok, conditions: { toString: { 'principal.id': 'x' } } }),
      'INVALID_POLICY',
      'toString',
    ],
    [
      'text under a numeric operator',
      doc({ ...ok, conditions: { NumericEquals: { 'resource.gpus': '3' } } }),
      'INVALID_POLICY',
      'finite number',
    ],
    [
      'impossible date',
      doc({ ...ok, conditions: { DateBefore: { 'request.time': '2026-02-30T00:00:00Z' } } }),
      'INVALID_POLICY',
      'instant',
    ],
    [
      'bad network',
      doc({ ...ok, conditions: { IpAddress: { 'request.sourceIp': '10.0.0.0/33' } } }),
      'INVALID_POLICY',
      'network',
    ],
    ['empty conditions', doc({ ...ok, conditions: {} }), 'INVALID_POLICY', 'conditions'],
    [
      'no values',
      doc({ ...ok, conditions: { StringEquals: { 'principal.id': [] } } }),
      'INVALID_POLICY',
      'principal.id',
    ],
    [
      'variable in an action',
      doc({ ...ok, actions: [`compute:${v('principal.id')}`] }),
      'INVALID_POLICY',
      'actions[0]',
    ],
    ['variable in the type', doc({ ...ok, resources: [`${v('principal.id')}/x`] }), 'INVALID_POLICY', 'resources[0]'],
    ['malformed variable', doc({ ...ok, resources: ['compute-node/${x'] }), 'INVALID_POLICY', 'malformed'],
    [
      'malformed variable in a value',
      doc({ ...ok, conditions: { StringEquals: { 'principal.id': v('') } } }),
      'INVALID_POLICY',
      'malformed',
    ],
    ['control character', doc({ ...ok, resources: ['compute-node/\n'] }), 'INVALID_POLICY', 'control'],
    ['unknown action', doc({ ...ok, actions: ['compute:nodes:reed'] }), 'INVALID_ACTION', 'compute:nodes:reed'],
    ['unknown type', doc({ ...ok, resources: ['compute-nod/*'] }), 'INVALID_RESOURCE_TYPE', 'compute-nod'],
    [
      'key without supplier',
      doc({ ...ok, conditions: { ArrayContains: { 'principal.teams': 'ml' } } }),
      'INVALID_POLICY',
      'principal.teams',
    ],
    [
      'relations',
      doc({ ...ok, conditions: { ArrayContains: { 'resource.relations': 'editor' } } }),
      'INVALID_POLICY',
      'resource.relations',
    ],
    [
      'variable without supplier',
      doc({ ...ok, resources: [`compute-node/${v('principal.riskLevel')}`] }),
      'INVALID_POLICY',
      'riskLevel',
    ],
    [
      'variable that the operator lowers away',
      doc({ ...ok, conditions: { StringLikeIgnoreCase: { 'resource.name': `${v('principal.tenantId')}-*` } } }),
      'INVALID_POLICY',
      'StringLike',
    ],
  ])('%s', (_, value, code, place) => {
    const [found, message] = refusal(value);
    expect(found).toBe(code);
    expect(message).toContain(place);
  });

  test('a prototype name as a context key', () => {
    const value = JSON.parse(
      `{"version":1,"statements":[{"effect":"allow","actions":["*"],"resources":["*"],"conditions":{"StringEquals":{"__proto__":"x"}}}]}`,
    );
    expect(refusal(value)[0]).toBe('INVALID_POLICY');
  });
});

test('wildcards are not held against the catalog', () => {
  expect(() =>
    parsePolicy(doc({ ...ok, actions: ['*:delete'], resources: ['compute-*/x', '*'] }), catalog),
  ).not.toThrow();
});

test('a catalog refuses reserved and malformed names', () => {
  expect(() => iamCatalog(['iam:roles:create'])).toThrow(TypeError);
  expect(() => iamCatalog(['compute:*:read'])).toThrow(TypeError);
  expect(() => iamCatalog([], { types: { 'compute-x': ['tenantId'] } })).toThrow(TypeError);
  expect(() => iamCatalog([], { principalAttributes: ['owner'] })).toThrow(TypeError);
});
