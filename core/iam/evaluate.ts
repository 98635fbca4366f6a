/**
 * The offline evaluator: documents, one question, one context in; allowed or not and why out. Pure, and the order of
 * documents and statements never matters. Grants are a union; every boundary is an intersection of its own; a deny
 * anywhere wins. A boundary that only denies therefore blocks everything.
 */
import { type Budget, BudgetSpent, type Context, matches, parseTemplate, type Template } from './glob.ts';
import { condition, type OperatorName } from './operators.ts';
import type { PolicyDocument, Statement } from './policy.ts';

export type OfflineReason = 'allowed' | 'explicit-deny' | 'no-grant' | 'boundary-deny' | 'evaluation-limit';

export interface Evaluation {
  readonly allowed: boolean;
  readonly reason: OfflineReason;
  /** `grant:0:sid` or `boundary:1:3`: which statements applied. */
  readonly matched: readonly string[];
}

export interface Question {
  readonly action: string;
  /** `type/id`; the tenant is never part of it. */
  readonly resource: string;
  readonly context: Context;
}

/** Units of work that one decision may take: characters looked at and values compared. */
export const WORK_BUDGET = 4_000_000;

const NOTHING: Context = {};

interface Compiled {
  readonly deny: boolean;
  readonly name: string;
  readonly actions: readonly Template[];
  readonly resources: readonly Template[];
  readonly conditions: readonly ((context: Context, budget: Budget) => boolean)[];
}

// Prepared once per document object; gone when the document is.
const compiled = new WeakMap<PolicyDocument, readonly Compiled[]>();

function compileStatement(statement: Statement, index: number): Compiled {
  return {
    deny: statement.effect === 'deny',
    name: statement.sid ?? String(index),
    // Variables are refused in actions, so none is looked for.
    actions: statement.actions.map((pattern) => ({ texts: [pattern], keys: [] })),
    resources: statement.resources.map(parseTemplate),
    conditions: Object.entries(statement.conditions ?? {}).flatMap(([operator, keys]) =>
      Object.entries(keys ?? {}).map(([key, listed]) =>
        condition(operator as OperatorName, key, Array.isArray(listed) ? listed : [listed]),
      ),
    ),
  };
}

function compile(document: PolicyDocument): readonly Compiled[] {
  const known = compiled.get(document);
  if (known !== undefined) return known;
  const fresh = document.statements.map(compileStatement);
  compiled.set(document, fresh);
  return fresh;
}

function applies(statement: Compiled, q: Question, budget: Budget): boolean {
  return (
    statement.actions.some((pattern) => matches(pattern, q.action, NOTHING, budget)) &&
    statement.resources.some((pattern) => matches(pattern, q.resource, q.context, budget)) &&
    statement.conditions.every((holds) => holds(q.context, budget))
  );
}

/** Throws BudgetSpent. */
export function evaluateWithin(
  q: Question,
  grants: readonly PolicyDocument[],
  boundaries: readonly PolicyDocument[],
  budget: Budget,
): Evaluation {
  const matched: string[] = [];
  let denied = false;
  let granted = false;
  const look = (kind: 'grant' | 'boundary', document: PolicyDocument, index: number): boolean => {
    let allows = false;
    for (const statement of compile(document)) {
      if (!applies(statement, q, budget)) continue;
      matched.push(`${kind}:${index}:${statement.name}`);
      if (statement.deny) denied = true;
      else allows = true;
    }
    return allows;
  };
  for (const [i, document] of grants.entries()) granted = look('grant', document, i) || granted;
  const within = boundaries.map((document, i) => look('boundary', document, i));
  if (denied) return { allowed: false, reason: 'explicit-deny', matched };
  if (!granted) return { allowed: false, reason: 'no-grant', matched };
  if (within.includes(false)) return { allowed: false, reason: 'boundary-deny', matched };
  return { allowed: true, reason: 'allowed', matched };
}

export function evaluate(
  q: Question,
  grants: readonly PolicyDocument[],
  boundaries: readonly PolicyDocument[] = [],
  budget: Budget = { left: WORK_BUDGET },
): Evaluation {
  try {
    return evaluateWithin(q, grants, boundaries, budget);
  } catch (e) {
    if (e instanceof BudgetSpent) return { allowed: false, reason: 'evaluation-limit', matched: [] };
    throw e;
  }
}
