/**
 * Options of a command from the zod schema of its input, and the input back from the options. One rule for all
 * operations: `poolId` is `--pool-id`; a list of objects is written `--devices class=gpu,count=3`, once for each; anything
 * deeper is JSON, or `@file` with JSON.
 */
import { readFileSync } from 'node:fs';
import type { z } from '@hono/zod-openapi';
import { Option } from 'commander';
import { problem } from '#core/kernel/errors.ts';

interface Definition {
  readonly type: string;
  readonly innerType?: z.ZodType;
  readonly in?: z.ZodType;
  readonly element?: z.ZodType;
  readonly entries?: Readonly<Record<string, string>>;
  readonly shape?: Readonly<Record<string, z.ZodType>>;
  readonly defaultValue?: unknown;
}

const definitionOf = (s: z.ZodType): Definition => (s as unknown as { def: Definition }).def;

interface Bare {
  readonly schema: z.ZodType;
  readonly required: boolean;
  /** What the API takes when nothing is given. */
  readonly preset?: unknown;
}

/** The schema beneath optional, default, nullable and pipes. */
function bare(s: z.ZodType): Bare {
  let required = true;
  let preset: unknown;
  let schema = s;
  for (;;) {
    const d = definitionOf(schema);
    if (d.type === 'optional' || d.type === 'default' || d.type === 'prefault') required = false;
    if (d.type === 'default') preset = d.defaultValue;
    const inner = d.type === 'pipe' ? d.in : d.innerType;
    if (inner === undefined) return { schema, required, ...(preset === undefined ? {} : { preset }) };
    schema = inner;
  }
}

const dashed = (name: string) => name.replaceAll(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);

export interface FieldOption {
  readonly field: string;
  readonly option: Option;
  readonly required: boolean;
  parse(raw: unknown): unknown;
}

function wrong(field: string, message: string): never {
  throw problem('INVALID_REQUEST', `--${dashed(field)}: ${message}`, { errors: [{ field, message }] });
}

function json(field: string, text: string): unknown {
  try {
    return JSON.parse(text.startsWith('@') ? readFileSync(text.slice(1), 'utf8') : text);
  } catch (e) {
    return wrong(field, `not JSON (${(e as Error).message}); write JSON, or @file with JSON in it`);
  }
}

/** `3`, `true` and `null` mean what they look like; everything else is text. */
function scalar(text: string): unknown {
  if (text === 'true' || text === 'false') return text === 'true';
  if (text === 'null') return null;
  return text !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** `class=gpu,count=3` */
function pairs(field: string, text: string): Record<string, unknown> {
  return Object.fromEntries(
    text.split(',').map((pair) => {
      const at = pair.indexOf('=');
      return at > 0
        ? [pair.slice(0, at).trim(), scalar(pair.slice(at + 1))]
        : wrong(field, `expected name=value, got "${pair}"`);
    }),
  );
}

const isJson = (text: string) => /^[[{@]/.test(text);

function parser(
  field: string,
  schema: z.ZodType,
): { flag: string; parse: (raw: unknown) => unknown; repeat?: boolean } {
  const d = definitionOf(schema);
  switch (d.type) {
    case 'boolean':
      return { flag: ' [true|false]', parse: (raw) => raw === true || raw === 'true' };
    case 'number':
    case 'int':
      return {
        flag: ' <n>',
        parse: (raw) =>
          String(raw) === 'null'
            ? null
            : Number.isFinite(Number(raw))
              ? Number(raw)
              : wrong(field, `"${raw}" is not a number`),
      };
    case 'array': {
      const element = definitionOf(bare(d.element!).schema).type;
      const one = (text: string) => (element === 'object' || element === 'union' ? pairs(field, text) : text);
      return {
        flag: ' <item...>',
        repeat: true,
        parse: (raw) => (raw as string[]).flatMap((text) => (isJson(text) ? json(field, text) : one(text))),
      };
    }
    case 'object':
    case 'record':
      return {
        flag: ' <name=value...>',
        repeat: true,
        parse: (raw) =>
          Object.assign(
            {},
            ...(raw as string[]).map((text) => (isJson(text) ? (json(field, text) as object) : pairs(field, text))),
          ),
      };
    default:
      return { flag: ' <text>', parse: (raw) => raw };
  }
}

/** How an item of a list of objects is written, from its fields. */
function written(schema: z.ZodType): string {
  const d = definitionOf(schema);
  const { shape } = d.type === 'array' ? definitionOf(bare(d.element!).schema) : {};
  if (shape === undefined) return '';
  const names = Object.keys(shape);
  const deep = names.filter((name) =>
    ['array', 'object', 'record'].includes(definitionOf(bare(shape[name]!).schema).type),
  );
  const flat = names.filter((name) => !deep.includes(name)).map((name) => `${name}=…`);
  const more = deep.length === 0 ? '' : `, or as JSON, which may add ${deep.join(', ')}`;
  return `; each as ${flat.join(',')}${more}`;
}

function noteOf(required: boolean, preset: unknown): string {
  if (required) return '(required)';
  const text = preset === undefined ? '' : JSON.stringify(preset).replaceAll('"', '');
  return text === '' || text === '{}' ? '' : `(default: ${text})`;
}

/** The options that a schema's fields become, in the order of the schema. */
export function optionsOf(schema: z.ZodType | undefined): FieldOption[] {
  if (schema === undefined) return [];
  const shape = definitionOf(bare(schema).schema).shape ?? {};
  return Object.entries(shape).map(([field, s]) => {
    const { schema: inner, required, preset } = bare(s);
    const { flag, parse } = parser(field, inner);
    const about = [s.description ?? inner.description ?? '', written(inner), noteOf(required, preset)];
    const option = new Option(
      `--${dashed(field)}${flag}`,
      about
        .filter((part) => part !== '')
        .join(' ')
        .replace(' ;', ';'),
    );
    const { entries } = definitionOf(inner);
    if (entries !== undefined) option.choices(Object.values(entries));
    return { field, option, required, parse };
  });
}
