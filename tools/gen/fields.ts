/** Fields of a zod schema as rows of a table: name, type, whether it must be given, meaning. */
import type { z } from 'zod';
import { code } from './markdown.ts';

interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly description?: string;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly example?: unknown;
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, JsonSchema>>;
}

export function jsonSchemaOf(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return (schema as unknown as { toJSONSchema(p: object): JsonSchema }).toJSONSchema({ io, unrepresentable: 'any' });
}

type Defs = Readonly<Record<string, JsonSchema>>;

function resolved(s: JsonSchema, defs: Defs): JsonSchema {
  if (s.$ref === undefined) return s;
  const { $ref, ...own } = s;
  return { ...defs[$ref.split('/').at(-1)!], ...own };
}

/** `string`, `integer 1..64`, `list of object`. */
export function typeOf(given: JsonSchema, defs: Defs): string {
  const s = resolved(given, defs);
  if (s.const !== undefined) return code(JSON.stringify(s.const));
  if (s.enum !== undefined) return s.enum.map((v) => code(String(v))).join(', ');
  const choices = s.anyOf ?? s.oneOf;
  if (choices !== undefined) return [...new Set(choices.map((c) => typeOf(c, defs)))].join(' or ');
  if (s.type === 'array') {
    const bound = range(s.minItems, s.maxItems);
    return `list of ${s.items === undefined ? 'anything' : typeOf(s.items, defs)}${bound}`;
  }
  if (s.type === 'object' && s.properties === undefined) {
    const of = typeof s.additionalProperties === 'object' ? ` of ${typeOf(s.additionalProperties, defs)}` : '';
    return `map${of}`;
  }
  if (s.type === 'integer' || s.type === 'number') {
    const max = s.maximum !== undefined && s.maximum < Number.MAX_SAFE_INTEGER ? s.maximum : undefined;
    const min = s.minimum !== undefined && s.minimum > Number.MIN_SAFE_INTEGER ? s.minimum : undefined;
    return `${s.type}${range(min, max)}`;
  }
  if (s.type === 'string')
    return s.format === 'uri' ? 'URL' : `string${range(s.minLength, s.maxLength, ' characters')}`;
  return s.type === undefined ? 'anything' : [s.type].flat().join(' or ');
}

function range(min: number | undefined, max: number | undefined, unit = ''): string {
  if (min === undefined && max === undefined) return '';
  // At least one of something is what anybody expects.
  if (max === undefined) return min! <= 1 ? '' : `, at least ${min}${unit}`;
  if (min === undefined || min === max) return `, at most ${max}${unit}`;
  return `, ${min} to ${max}${unit}`;
}

export type FieldRow = readonly [field: string, type: string, presence: string, meaning: string];

/** Nested objects follow their parent, as `allocations[].id`. */
export function fieldRows(schema: z.ZodType, io: 'input' | 'output'): FieldRow[] {
  const root = jsonSchemaOf(schema, io);
  return rowsOf(root, root.$defs ?? {}, io, '', 0);
}

const DEPTH_MAX = 3;

function rowsOf(given: JsonSchema, defs: Defs, io: 'input' | 'output', prefix: string, depth: number): FieldRow[] {
  const s = resolved(given, defs);
  return Object.entries(s.properties ?? {}).flatMap(([name, raw]): FieldRow[] => {
    const field = resolved(raw, defs);
    const always = s.required?.includes(name) === true && field.default === undefined;
    const presence = io === 'input' ? (always ? 'required' : '') : always ? 'always' : '';
    const notes = [
      field.description ?? '',
      field.default === undefined ? '' : `default ${code(JSON.stringify(field.default))}`,
      field.example === undefined ? '' : `for example ${code(JSON.stringify(field.example))}`,
    ].filter((t) => t !== '');
    const path = `${prefix}${name}`;
    const row: FieldRow = [code(path), typeOf(field, defs), presence, notes.join('; ')];
    if (depth >= DEPTH_MAX) return [row];
    const inner = field.type === 'array' && field.items !== undefined ? resolved(field.items, defs) : field;
    const mark = field.type === 'array' ? '[].' : '.';
    return [row, ...rowsOf(inner, defs, io, `${path}${mark}`, depth + 1)];
  });
}
