/**
 * The policy document and what may be stored of it. `parsePolicy` is the only way from untrusted JSON to a document: it
 * refuses unknown fields, operators and values of the wrong type; with a catalog also actions and types that do not
 * exist, and context keys that nobody supplies (a key that never arrives would switch a deny off without a word).
 */
import { z } from 'zod';
import { type Catalog, suppliesKey } from './catalog.ts';
import { parseTemplate, variablesWellFormed } from './glob.ts';
import { IamError, type IamErrorCode } from './iam-error.ts';
import { isOperator, OPERATORS, type OperatorName, type Scalar } from './operators.ts';

export interface Statement {
  readonly sid?: string | undefined;
  readonly effect: 'allow' | 'deny';
  readonly actions: readonly string[];
  readonly resources: readonly string[];
  readonly conditions?: Readonly<Partial<Record<OperatorName, Readonly<Record<string, Scalar | readonly Scalar[]>>>>>;
}

export interface PolicyDocument {
  readonly version: 1;
  readonly statements: readonly Statement[];
}

export const STATEMENTS_MAX = 128;
const PATTERN_MAX = 512;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused.
const CONTROL = /[\u0000-\u001f\u007f]/;
const MALFORMED = 'holds a malformed variable; one is written $, {, key, }';
const UNSAFE_KEYS = new Set(['__proto__', 'prototype', 'constructor']);

const plainText = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine((s) => !CONTROL.test(s), 'must not hold control characters');

const actionPattern = plainText(PATTERN_MAX).refine((s) => !s.includes('${'), 'a variable may not stand in an action');
const resourcePattern = plainText(PATTERN_MAX)
  .refine(variablesWellFormed, MALFORMED)
  .refine((s) => !s.split('/', 1)[0]!.includes('${'), 'a variable may only stand behind the resource type');

const scalar = z.union([z.string(), z.number(), z.boolean()]);
const key = plainText(128).refine((s) => !UNSAFE_KEYS.has(s), 'is not a context key');
const keys = z
  .record(key, z.union([scalar, z.array(scalar).min(1).max(64)]))
  .refine((entries) => Object.keys(entries).length >= 1 && Object.keys(entries).length <= 64, 'takes 1 to 64 keys');

function checkValues(name: OperatorName, entries: z.output<typeof keys>, ctx: z.core.$RefinementCtx): void {
  for (const [contextKey, listed] of Object.entries(entries)) {
    for (const value of Array.isArray(listed) ? listed : [listed]) {
      const path = [name, contextKey];
      if (!OPERATORS[name].accepts(value)) {
        ctx.addIssue({ code: 'custom', path, message: `must be ${OPERATORS[name].expects}` });
      } else if (typeof value === 'string' && !variablesWellFormed(value)) {
        ctx.addIssue({ code: 'custom', path, message: MALFORMED });
      }
    }
  }
}

const conditions = z.record(z.string(), keys).superRefine((operators, ctx) => {
  if (Object.keys(operators).length === 0) ctx.addIssue({ code: 'custom', message: 'names no operator' });
  for (const [name, entries] of Object.entries(operators)) {
    if (isOperator(name)) checkValues(name, entries, ctx);
    else ctx.addIssue({ code: 'custom', path: [name], message: 'is not an operator' });
  }
});

const statement = z.strictObject({
  sid: plainText(128).optional(),
  effect: z.enum(['allow', 'deny']),
  actions: z.array(actionPattern).min(1).max(128),
  resources: z.array(resourcePattern).min(1).max(128),
  conditions: conditions.optional(),
});

export const policyDocument = z
  .strictObject({ version: z.literal(1), statements: z.array(statement).max(STATEMENTS_MAX) })
  .superRefine((document, ctx) => {
    const seen = new Set<string>();
    for (const [i, { sid }] of document.statements.entries()) {
      if (sid === undefined) continue;
      if (seen.has(sid)) ctx.addIssue({ code: 'custom', path: ['statements', i, 'sid'], message: 'is used twice' });
      seen.add(sid);
    }
  });

function refuse(code: IamErrorCode, path: readonly PropertyKey[], message: string): never {
  const at = path.map((p) => (typeof p === 'number' ? `[${p}]` : `.${String(p)}`)).join('');
  throw new IamError(code, `${at === '' ? 'the document' : at.replace(/^\./, '')}: ${message}`);
}

/** Keys that would reach an object's prototype. Asked first: schema libraries drop them without a word. */
function refuseUnsafeKeys(value: unknown, path: readonly PropertyKey[]): void {
  if (typeof value !== 'object' || value === null) return;
  // A document is at most statement list, statement, conditions, operator, key, list deep.
  if (path.length > 8) refuse('INVALID_POLICY', path.slice(0, 8), 'is nested too deeply');
  for (const name of Object.keys(value)) {
    if (UNSAFE_KEYS.has(name)) refuse('INVALID_POLICY', [...path, name], 'is not allowed as a name');
    refuseUnsafeKeys((value as Record<string, unknown>)[name], [...path, Array.isArray(value) ? Number(name) : name]);
  }
}

const isPattern = (text: string): boolean => /[*?]/.test(text);

function checkCatalog(document: PolicyDocument, catalog: Catalog): void {
  for (const [i, s] of document.statements.entries()) {
    for (const [j, action] of s.actions.entries()) {
      if (isPattern(action) || catalog.actions.has(action)) continue;
      refuse('INVALID_ACTION', ['statements', i, 'actions', j], `there is no action ${action}`);
    }
    for (const [j, resource] of s.resources.entries()) {
      const at = ['statements', i, 'resources', j];
      const type = resource.split('/', 1)[0]!;
      if (!isPattern(type) && !catalog.types.has(type)) {
        refuse('INVALID_RESOURCE_TYPE', at, `there is no resource type ${type}`);
      }
      for (const name of parseTemplate(resource).keys) checkKey(name, at, catalog);
    }
    for (const [operator, entries] of Object.entries(s.conditions ?? {})) {
      for (const [name, listed] of Object.entries(entries ?? {})) {
        const at = ['statements', i, 'conditions', operator, name];
        checkKey(name, at, catalog);
        for (const value of [listed].flat()) {
          if (typeof value !== 'string') continue;
          for (const variable of parseTemplate(value).keys) checkVariable(operator, variable, at, catalog);
        }
      }
    }
  }
}

function checkKey(name: string, at: readonly PropertyKey[], catalog: Catalog): void {
  if (suppliesKey(catalog, name)) return;
  refuse('INVALID_POLICY', at, `nothing supplies the context key ${name}, so the statement would never apply`);
}

function checkVariable(operator: string, name: string, at: readonly PropertyKey[], catalog: Catalog): void {
  checkKey(name, at, catalog);
  // The operator lowers names too, and a lowered name is another key.
  if (operator === 'StringLikeIgnoreCase' && name !== name.toLowerCase()) {
    refuse('INVALID_POLICY', at, `\${${name}} never resolves under StringLikeIgnoreCase; use StringLike`);
  }
}

/** Throws INVALID_POLICY, INVALID_ACTION or INVALID_RESOURCE_TYPE, naming the place. */
export function parsePolicy(value: unknown, catalog?: Catalog): PolicyDocument {
  refuseUnsafeKeys(value, []);
  const parsed = policyDocument.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    const more = parsed.error.issues.length - 1;
    refuse('INVALID_POLICY', issue.path, more > 0 ? `${issue.message} (and ${more} more)` : issue.message);
  }
  const document = parsed.data as PolicyDocument;
  if (catalog !== undefined) checkCatalog(document, catalog);
  return document;
}
