/**
 * The 21 condition operators. A missing key fails every operator but `Exists`, and so does a value of another type;
 * negated operators first need a value that the comparison could have been made with. Nothing is coerced.
 *
 * Known sharp edges, kept because documents must mean the same here and at a remote service: a variable that cannot be
 * resolved makes the comparison false, hence a negated operator true; `StringLikeIgnoreCase` lowers the whole pattern,
 * so that a variable whose name has capitals is never found.
 */
import ipaddr from 'ipaddr.js';
import { type Budget, type Context, type ContextValue, fill, lookup, matches, parseTemplate, spend } from './glob.ts';

export type Scalar = string | number | boolean;

type Actual = Exclude<ContextValue, undefined>;
/** One listed value, prepared once per document, against the context's value. */
type Test = (actual: Actual, context: Context, budget: Budget) => boolean;

interface Operator {
  /** What may stand in a document; the text completes "must be". */
  readonly expects: string;
  readonly accepts: (value: unknown) => boolean;
  /** Whether the context's value has the type that the operator compares. */
  readonly typed: (actual: Actual) => boolean;
  readonly prepare: (expected: Scalar) => Test;
  readonly negated?: boolean;
  /** Every listed value must hold, not only one. */
  readonly every?: boolean;
}

const TEXT_MAX = 2048;
const isText = (v: unknown): v is string => typeof v === 'string' && v.length <= TEXT_MAX;
const isString = (v: unknown): v is string => typeof v === 'string';
const isNumber = (v: unknown): v is number => typeof v === 'number' && Number.isFinite(v);
const isBoolean = (v: unknown): v is boolean => typeof v === 'boolean';
const isList = (v: unknown): v is readonly Scalar[] => Array.isArray(v);

const DATE = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,3})?(?:Z|[+-]\d\d:\d\d)$/;

/** Milliseconds since the epoch, or undefined for a text that names no real instant. */
export function parseDate(value: unknown): number | undefined {
  const part = typeof value === 'string' ? DATE.exec(value) : null;
  if (part === null) return undefined;
  const [year, month, day, hour, minute, second] = part.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1];
  if (days === undefined || day < 1 || day > days || hour > 23 || minute > 59 || second > 59) return undefined;
  const ms = Date.parse(part[0]);
  return Number.isFinite(ms) ? ms : undefined;
}

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** Plain addresses only: no zone, no brackets, no octal or shortened IPv4. */
export function parseAddress(value: unknown): Address | undefined {
  if (typeof value !== 'string' || /[^0-9a-fA-F:.]/.test(value)) return undefined;
  if (!value.includes(':')) return ipaddr.IPv4.isValidFourPartDecimal(value) ? ipaddr.IPv4.parse(value) : undefined;
  if (value.includes('.') && !ipaddr.IPv4.isValidFourPartDecimal(value.slice(value.lastIndexOf(':') + 1))) {
    return undefined;
  }
  return ipaddr.IPv6.isValid(value) ? ipaddr.IPv6.parse(value) : undefined;
}

/** An IPv4-mapped IPv6 address or network stands for its IPv4 one whenever the other side is IPv4. */
export function parseNetwork(value: unknown): { address: Address; prefix: number } | undefined {
  if (typeof value !== 'string') return undefined;
  const [text, length, ...more] = value.split('/');
  const address = parseAddress(text);
  if (address === undefined || more.length > 0) return undefined;
  const bits = address.kind() === 'ipv4' ? 32 : 128;
  if (length === undefined) return { address, prefix: bits };
  if (!/^(0|[1-9]\d{0,2})$/.test(length) || Number(length) > bits) return undefined;
  return { address, prefix: Number(length) };
}

function inNetwork(actual: Address, network: { address: Address; prefix: number }): boolean {
  let address = actual;
  let { address: base, prefix } = network;
  if (address.kind() !== base.kind()) {
    if (address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress()) address = address.toIPv4Address();
    else if (base instanceof ipaddr.IPv6 && base.isIPv4MappedAddress() && prefix >= 96) {
      base = base.toIPv4Address();
      prefix -= 96;
    } else return false;
  }
  return address.match(base as ipaddr.IPv4 & ipaddr.IPv6, prefix);
}

const text = (prepare: (expected: string) => Test): Pick<Operator, 'expects' | 'accepts' | 'typed' | 'prepare'> => ({
  expects: `a string of at most ${TEXT_MAX} characters`,
  accepts: isText,
  typed: isString,
  prepare: (expected) => prepare(expected as string),
});

const numeric = (holds: (actual: number, expected: number) => boolean) => ({
  expects: 'a finite number',
  accepts: isNumber,
  typed: isNumber,
  prepare:
    (expected: Scalar): Test =>
    (actual) =>
      holds(actual as number, expected as number),
});

const dated = (holds: (actual: number, expected: number) => boolean): Operator => ({
  expects: 'an instant such as 2026-12-01T00:00:00Z',
  accepts: (v) => parseDate(v) !== undefined,
  typed: isString,
  prepare: (expected) => {
    const at = parseDate(expected);
    return (actual) => {
      const instant = parseDate(actual);
      return instant !== undefined && at !== undefined && holds(instant, at);
    };
  },
});

const address = {
  expects: 'an IP address or network such as 203.0.113.0/24',
  accepts: (v: unknown) => parseNetwork(v) !== undefined,
  typed: (v: Actual) => parseAddress(v) !== undefined,
  prepare: (expected: Scalar): Test => {
    const network = parseNetwork(expected);
    return (actual) => {
      const from = parseAddress(actual);
      return from !== undefined && network !== undefined && inNetwork(from, network);
    };
  },
};

const member = {
  expects: `a boolean, a finite number or a string of at most ${TEXT_MAX} characters`,
  accepts: (v: unknown) => isText(v) || isNumber(v) || isBoolean(v),
  typed: isList,
  prepare: (expected: Scalar): Test => {
    if (typeof expected !== 'string') return (actual) => isList(actual) && actual.includes(expected);
    const template = parseTemplate(expected);
    return (actual, context) => {
      const wanted = fill(template, context);
      return wanted !== undefined && isList(actual) && actual.includes(wanted);
    };
  },
};

const equals = text((expected) => {
  const template = parseTemplate(expected);
  return (actual, context) => actual === fill(template, context);
});
const equalsIgnoreCase = text((expected) => {
  const template = parseTemplate(expected);
  return (actual, context) => (actual as string).toLowerCase() === fill(template, context)?.toLowerCase();
});
const like = text((expected) => {
  const template = parseTemplate(expected);
  return (actual, context, budget) => matches(template, actual as string, context, budget);
});
const likeIgnoreCase = text((expected) => {
  const template = parseTemplate(expected.toLowerCase());
  return (actual, context, budget) => matches(template, (actual as string).toLowerCase(), context, budget, true);
});

export const OPERATORS = {
  StringEquals: equals,
  StringNotEquals: { ...equals, negated: true, every: true },
  StringEqualsIgnoreCase: equalsIgnoreCase,
  StringNotEqualsIgnoreCase: { ...equalsIgnoreCase, negated: true, every: true },
  StringLike: like,
  StringNotLike: { ...like, negated: true, every: true },
  StringLikeIgnoreCase: likeIgnoreCase,
  Bool: {
    expects: 'true or false',
    accepts: isBoolean,
    typed: isBoolean,
    prepare: (expected) => (actual) => actual === expected,
  },
  NumericEquals: numeric((a, b) => a === b),
  NumericNotEquals: { ...numeric((a, b) => a === b), negated: true, every: true },
  NumericLessThan: numeric((a, b) => a < b),
  NumericLessThanEquals: numeric((a, b) => a <= b),
  NumericGreaterThan: numeric((a, b) => a > b),
  NumericGreaterThanEquals: numeric((a, b) => a >= b),
  DateBefore: dated((a, b) => a < b),
  DateAfter: dated((a, b) => a > b),
  IpAddress: address,
  NotIpAddress: { ...address, negated: true, every: true },
  ArrayContains: member,
  ArrayContainsAll: { ...member, every: true },
  // Asked about presence, not about a value; see `condition`.
  Exists: { expects: 'true or false', accepts: isBoolean, typed: () => true, prepare: () => () => true },
} as const satisfies Record<string, Operator>;

export type OperatorName = keyof typeof OPERATORS;

export function isOperator(name: string): name is OperatorName {
  return Object.hasOwn(OPERATORS, name);
}

/** One operator, one key, its listed values: ready to be asked. */
export function condition(name: OperatorName, key: string, listed: readonly Scalar[]) {
  const operator: Operator = OPERATORS[name];
  const tests = listed.map(operator.prepare);
  return (context: Context, budget: Budget): boolean => {
    spend(budget, listed.length);
    const actual = lookup(context, key);
    if (name === 'Exists') return listed.includes(actual !== undefined);
    if (actual === undefined || !operator.typed(actual)) return false;
    const holds = (test: Test): boolean => test(actual, context, budget) !== (operator.negated === true);
    return operator.every === true ? tests.every(holds) : tests.some(holds);
  };
}
