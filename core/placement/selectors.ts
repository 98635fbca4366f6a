/**
 * Selectors over a device's typed attributes. A missing attribute satisfies only `exists: false`; a value of another
 * type satisfies nothing, so that a typo refuses instead of widening.
 */
export type AttributeValue = string | number | boolean;
export type Attributes = Readonly<Record<string, AttributeValue>>;

export type Selector =
  | { readonly attribute: string; readonly op: 'equals'; readonly value: AttributeValue }
  | { readonly attribute: string; readonly op: 'in'; readonly values: readonly AttributeValue[] }
  /** Numbers by value, dotted versions (`550.54.15`) part by part; both ends inclusive, at least one given. */
  | { readonly attribute: string; readonly op: 'range'; readonly min?: number | string; readonly max?: number | string }
  | { readonly attribute: string; readonly op: 'exists'; readonly value: boolean };

const VERSION = /^\d+(\.\d+)*$/;

/** Negative, zero or positive; undefined when the two cannot be ordered. */
function compare(a: AttributeValue, b: AttributeValue): number | undefined {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  if (typeof a !== 'string' || typeof b !== 'string' || !VERSION.test(a) || !VERSION.test(b)) return undefined;
  const [left, right] = [a.split('.'), b.split('.')];
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const d = Number(left[i] ?? 0) - Number(right[i] ?? 0);
    if (d !== 0) return d;
  }
  return 0;
}

export function matches(selector: Selector, attributes: Attributes): boolean {
  const value = Object.hasOwn(attributes, selector.attribute) ? attributes[selector.attribute] : undefined;
  if (selector.op === 'exists') return (value !== undefined) === selector.value;
  if (value === undefined) return false;
  switch (selector.op) {
    case 'equals':
      return value === selector.value;
    case 'in':
      return selector.values.includes(value);
    case 'range': {
      const low = selector.min === undefined ? 0 : compare(value, selector.min);
      const high = selector.max === undefined ? 0 : compare(value, selector.max);
      return low !== undefined && high !== undefined && low >= 0 && high <= 0;
    }
  }
}

/** `model = h100`, as `explain` prints it. */
export function describe(s: Selector): string {
  switch (s.op) {
    case 'equals':
      return `${s.attribute} = ${s.value}`;
    case 'in':
      return `${s.attribute} in ${s.values.join(', ')}`;
    case 'range':
      return `${s.attribute} in [${s.min ?? ''}, ${s.max ?? ''}]`;
    case 'exists':
      return s.value ? `${s.attribute} present` : `${s.attribute} absent`;
  }
}
