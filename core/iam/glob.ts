/**
 * Anchored globs with variables: `*` stands for any run of characters (`/` and `:` too), `?` for one code point, nothing
 * else is special. `${key}` takes the context's value literally, so that a value's own `*` or `?` never widens a pattern;
 * a key that is missing or holds a list makes the pattern match nothing. Time is at most pattern x text, and paid for
 * out of the caller's budget.
 */

export type ContextValue = string | number | boolean | readonly (string | number | boolean)[];
/** What a decision may look at. Own members only; `undefined` is the same as absent. */
export type Context = Readonly<Record<string, ContextValue | undefined>>;

/** Steps that one decision may take. Running dry aborts it with BudgetSpent, which ends in a denial. */
export interface Budget {
  left: number;
}

export class BudgetSpent extends Error {
  override name = 'BudgetSpent';
}

export function spend(budget: Budget, units: number): void {
  budget.left -= units;
  if (budget.left < 0) throw new BudgetSpent('the decision takes more work than is allowed');
}

const STAR = -1;
const ONE = -2;
const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_.:-]{0,127})\}/g;

/** A pattern split at its variables: text and keys by turns. */
export interface Template {
  /** Always one more than `keys`. */
  readonly texts: readonly string[];
  readonly keys: readonly string[];
}

export function parseTemplate(pattern: string): Template {
  if (!pattern.includes('${')) return { texts: [pattern], keys: [] };
  const texts: string[] = [];
  const keys: string[] = [];
  let at = 0;
  for (const match of pattern.matchAll(VARIABLE)) {
    texts.push(pattern.slice(at, match.index));
    keys.push(match[1]!);
    at = match.index + match[0].length;
  }
  texts.push(pattern.slice(at));
  return { texts, keys };
}

/** Every `${` opens a well-formed variable. */
export function variablesWellFormed(pattern: string): boolean {
  return !parseTemplate(pattern).texts.some((text) => text.includes('${'));
}

/** The context's own value, or undefined; never what a prototype carries. */
export function lookup(context: Context, key: string): ContextValue | undefined {
  return Object.hasOwn(context, key) ? context[key] : undefined;
}

function scalar(context: Context, key: string): string | undefined {
  const value = lookup(context, key);
  return value === undefined || typeof value === 'object' ? undefined : String(value);
}

/** The template's text with its variables filled in, for comparisons without wildcards. */
export function fill(template: Template, context: Context): string | undefined {
  let text = template.texts[0]!;
  for (const [i, key] of template.keys.entries()) {
    const value = scalar(context, key);
    if (value === undefined) return undefined;
    text += value + template.texts[i + 1]!;
  }
  return text;
}

function codePoints(text: string): number[] {
  return Array.from(text, (char) => char.codePointAt(0)!);
}

function globPoints(text: string, into: number[]): void {
  for (const char of text) into.push(char === '*' ? STAR : char === '?' ? ONE : char.codePointAt(0)!);
}

function resolve(template: Template, context: Context, fold: boolean): number[] | undefined {
  const points: number[] = [];
  globPoints(template.texts[0]!, points);
  for (const [i, key] of template.keys.entries()) {
    const value = scalar(context, key);
    if (value === undefined) return undefined;
    points.push(...codePoints(fold ? value.toLowerCase() : value));
    globPoints(template.texts[i + 1]!, points);
  }
  return points;
}

/** Two-pointer match with one remembered star: no recursion, no exponential blow-up. */
function run(pattern: readonly number[], text: readonly number[], budget: Budget): boolean {
  let p = 0;
  let t = 0;
  let star = -1;
  let resume = 0;
  while (t < text.length) {
    spend(budget, 1);
    const token = pattern[p];
    if (token === STAR) {
      star = p++;
      resume = t;
    } else if (token !== undefined && (token === ONE || token === text[t])) {
      p++;
      t++;
    } else if (star >= 0) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (pattern[p] === STAR) p++;
  return p === pattern.length;
}

/** `fold` ignores the case of the substituted values; pattern and text come already lowered. */
export function matches(template: Template, text: string, context: Context, budget: Budget, fold = false): boolean {
  spend(budget, 1);
  if (template.keys.length === 0) {
    const only = template.texts[0]!;
    if (only === '*') return true;
    if (!only.includes('*') && !only.includes('?')) return only === text;
  }
  const pattern = resolve(template, context, fold);
  return pattern !== undefined && run(pattern, codePoints(text), budget);
}

/** A glob without variables against a text, for confirm patterns and credential scopes. */
export function globMatches(pattern: string, text: string): boolean {
  const points: number[] = [];
  globPoints(pattern, points);
  return run(points, codePoints(text), { left: Number.MAX_SAFE_INTEGER });
}
