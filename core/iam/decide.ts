/**
 * The decision service's order of questions over gathered facts. Pure: the facts come from one snapshot of the database
 * (plugins/iam), the answer carries the true reason, and the port shows callers only that it was denied.
 *
 * A deny in any held role cuts across all of them; a missing allow in a path's own ceiling ends only that path; a
 * confirmation is asked for only where the answer would otherwise be yes.
 */

import { evaluateWithin, type OfflineReason, type Question, WORK_BUDGET } from './evaluate.ts';
import { type Budget, BudgetSpent, globMatches } from './glob.ts';
import type { PolicyDocument } from './policy.ts';

export type TenantStatus = 'pending' | 'active' | 'suspended' | 'deleted';

export type DecisionReason =
  | 'allowed'
  | 'ROOT_OVERRIDE'
  | 'TENANT_INACTIVE'
  | 'TENANT_MISMATCH'
  | 'UNKNOWN_ACTION'
  | 'NO_APPLICABLE_GRANT'
  | 'CONFIRMATION_REQUIRED'
  | Exclude<OfflineReason, 'allowed' | 'no-grant'>;

/** One way in which the caller may have been granted something: a role held through one binding. */
export interface GrantPath {
  readonly grants: readonly PolicyDocument[];
  /** Ceilings of those who handed the grant on; they end this path alone. */
  readonly boundaries: readonly PolicyDocument[];
}

export interface DecisionFacts {
  readonly targetTenant: string;
  /** Statuses from the target up to the root. */
  readonly chain: readonly TenantStatus[];
  readonly session: {
    readonly tenant: string;
    /** A person of the root tenant with administrator's rights and a second factor, in a session of their own. */
    readonly rootOverride: boolean;
  };
  readonly knows: (action: string) => boolean;
  readonly paths: readonly GrantPath[];
  readonly common: readonly PolicyDocument[];
  /** Action patterns that the delegating person held back. */
  readonly confirm: readonly string[];
  /** `action|type/id` of approvals that still stand. */
  readonly approved: ReadonlySet<string>;
}

export interface FullDecision {
  readonly allowed: boolean;
  readonly reason: DecisionReason;
  readonly matched: readonly string[];
}

const ALLOW_ALL: PolicyDocument = {
  version: 1,
  statements: [{ effect: 'allow', actions: ['*'], resources: ['*'] }],
};

const no = (reason: DecisionReason, matched: readonly string[] = []): FullDecision => ({
  allowed: false,
  reason,
  matched,
});

/** Whose deny statements count for every path. Kept per document so that prepared statements are used again. */
const denials = new WeakMap<PolicyDocument, PolicyDocument>();
function onlyDenies(document: PolicyDocument): PolicyDocument {
  const known = denials.get(document);
  if (known !== undefined) return known;
  const fresh = { version: 1 as const, statements: document.statements.filter((s) => s.effect === 'deny') };
  denials.set(document, fresh);
  return fresh;
}

export function approvalKey(action: string, resource: string): string {
  return `${action}|${resource}`;
}

function grantsOf(q: Question, facts: DecisionFacts, budget: Budget): FullDecision {
  const held = facts.paths.flatMap((path) => path.grants).map(onlyDenies);
  const pass = evaluateWithin(q, [ALLOW_ALL, ...held], facts.common, budget);
  if (!pass.allowed) return no(pass.reason as DecisionReason, pass.matched);
  for (const path of facts.paths) {
    const found = evaluateWithin(q, path.grants, [...facts.common, ...path.boundaries], budget);
    if (!found.allowed) continue;
    const heldBack = facts.confirm.some((pattern) => globMatches(pattern, q.action));
    if (heldBack && !facts.approved.has(approvalKey(q.action, q.resource))) {
      return no('CONFIRMATION_REQUIRED', found.matched);
    }
    return { allowed: true, reason: 'allowed', matched: found.matched };
  }
  return no('NO_APPLICABLE_GRANT');
}

/** The tenant's and the action's own questions, which need no attributes; undefined when policies must be asked. */
export function preliminary(action: string, facts: DecisionFacts): FullDecision | undefined {
  if (!facts.session.rootOverride) {
    if (facts.chain.some((status) => status !== 'active')) return no('TENANT_INACTIVE');
    if (facts.session.tenant !== facts.targetTenant) return no('TENANT_MISMATCH');
  }
  if (!facts.knows(action)) return no('UNKNOWN_ACTION');
  return undefined;
}

export function decide(q: Question, facts: DecisionFacts, budget: Budget = { left: WORK_BUDGET }): FullDecision {
  const early = preliminary(q.action, facts);
  if (early !== undefined) return early;
  if (facts.session.rootOverride) return { allowed: true, reason: 'ROOT_OVERRIDE', matched: [] };
  try {
    return grantsOf(q, facts, budget);
  } catch (e) {
    if (e instanceof BudgetSpent) return no('evaluation-limit');
    throw e;
  }
}
