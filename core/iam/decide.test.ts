import { describe, expect, test } from 'vitest';
import { type DecisionFacts, decide, type TenantStatus } from './decide.ts';
import { evaluate } from './evaluate.ts';
import type { Context } from './glob.ts';
import { parsePolicy, type Statement } from './policy.ts';
import vectors from './vectors.json' with { type: 'json' };

interface Vector {
  id: string;
  a: string;
  r: string;
  c: Context;
  want: [boolean, string];
  g?: Statement[][];
  b?: Statement[][];
  t?: string;
  chain?: TenantStatus[];
  s?: { tenant: string; kind: string; root?: boolean; mfa?: boolean };
  known?: string[];
  paths?: { g: Statement[][]; b: Statement[][] }[];
  common?: Statement[][];
  confirm?: string[];
  approved?: string[];
}

const all = vectors as unknown as Vector[];
const documents = (lists: Statement[][] = []) => lists.map((statements) => parsePolicy({ version: 1, statements }));

function factsOf(v: Vector): DecisionFacts {
  return {
    targetTenant: v.t!,
    chain: v.chain!,
    session: { tenant: v.s!.tenant, rootOverride: v.s!.root === true && v.s!.mfa === true && v.s!.kind === 'user' },
    knows: (action) => v.known!.includes(action),
    paths: v.paths!.map((path) => ({ grants: documents(path.g), boundaries: documents(path.b) })),
    common: documents(v.common),
    confirm: v.confirm ?? [],
    approved: new Set(v.approved),
  };
}

describe('decision vectors', () => {
  test('there are 24', () => expect(all.map((v) => v.id)).toHaveLength(24));

  test.each(all.filter((v) => v.g !== undefined))('$id: offline evaluator says $want', (v) => {
    const found = evaluate({ action: v.a, resource: v.r, context: v.c }, documents(v.g), documents(v.b));
    expect([found.allowed, found.reason]).toEqual(v.want);
  });

  test.each(all.filter((v) => v.t !== undefined))('$id: decision service says $want', (v) => {
    const found = decide({ action: v.a, resource: v.r, context: v.c }, factsOf(v));
    expect([found.allowed, found.reason]).toEqual(v.want);
  });
});

const allowAll: Statement = { effect: 'allow', actions: ['*'], resources: ['*'] };
const base: DecisionFacts = {
  targetTenant: 'acme',
  chain: ['active', 'active'],
  session: { tenant: 'acme', rootOverride: false },
  knows: (action) => action.startsWith('compute:'),
  paths: [{ grants: documents([[allowAll]]), boundaries: [] }],
  common: [],
  confirm: [],
  approved: new Set(),
};
const ask = (facts: Partial<DecisionFacts>, action = 'compute:nodes:drain') =>
  decide({ action, resource: 'compute-node/n1', context: {} }, { ...base, ...facts }).reason;

describe('order of the decision service', () => {
  test('what the person may not do is no confirmation', () => {
    expect(ask({ confirm: ['*'], paths: [] })).toBe('NO_APPLICABLE_GRANT');
    expect(ask({ confirm: ['*'] })).toBe('CONFIRMATION_REQUIRED');
  });

  test('a deny in one role cuts across the others', () => {
    const deny: Statement = { effect: 'deny', actions: ['compute:nodes:*'], resources: ['*'] };
    expect(ask({ paths: [...base.paths, { grants: documents([[deny]]), boundaries: [] }] })).toBe('explicit-deny');
  });

  test("a deny in one path's own ceiling ends that path alone", () => {
    const ceiling = documents([[allowAll, { effect: 'deny', actions: ['*'], resources: ['*'] }]]);
    const blocked = { grants: documents([[allowAll]]), boundaries: ceiling };
    expect(ask({ paths: [blocked] })).toBe('NO_APPLICABLE_GRANT');
    expect(ask({ paths: [blocked, ...base.paths] })).toBe('allowed');
  });

  test('an inactive tenant is told before a foreign one, and the root session passes both', () => {
    const foreign = { tenant: 'other', rootOverride: false };
    expect(ask({ chain: ['suspended'], session: foreign })).toBe('TENANT_INACTIVE');
    expect(ask({ session: foreign })).toBe('TENANT_MISMATCH');
    expect(ask({ chain: ['suspended'], session: { tenant: 'root', rootOverride: true } })).toBe('ROOT_OVERRIDE');
  });

  test('work without end is a denial', () => {
    const pattern = `compute-node/*${'a'.repeat(200)}b`;
    const grants = [
      parsePolicy({ version: 1, statements: [{ effect: 'allow', actions: ['*'], resources: [pattern] }] }),
    ];
    const q = { action: 'compute:nodes:read', resource: `compute-node/${'a'.repeat(2000)}`, context: {} };
    expect(evaluate(q, grants, [], { left: 100_000 }).reason).toBe('evaluation-limit');
    expect(decide(q, { ...base, paths: [{ grants, boundaries: [] }] }, { left: 100_000 }).allowed).toBe(false);
  });
});
