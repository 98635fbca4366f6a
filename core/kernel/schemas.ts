/** Pieces that contracts of several capabilities are made of. Objects are strict: an unknown field is refused by name. */
import { z } from '@hono/zod-openapi';
import { ID_PREFIXES, type IdKind, isId } from './ids.ts';

/** A TypeID of one kind. */
export const id = <K extends IdKind>(kind: K) =>
  z
    .string()
    .refine((v): boolean => isId(kind, v), `expected an id that starts with "${ID_PREFIXES[kind]}_"`)
    .meta({
      description: `Id of ${/^[aeio]/.test(kind) ? 'an' : 'a'} ${kind}`,
      example: `${ID_PREFIXES[kind]}_01h2xcejqtf2nbrexx3vqjhp41`,
    });

/** A tenant's id is the identity service's to choose. */
export const tenantId = z.string().min(1).max(128).meta({ description: 'Id of a tenant of the identity service' });

/** RFC 3339 with an offset; a bare local time is refused. */
export const instant = z.iso
  .datetime({ offset: true, message: 'expected an RFC 3339 instant with an offset, such as 2026-12-01T10:00:00Z' })
  .meta({ description: 'Instant, RFC 3339 with an offset', example: '2026-12-01T10:00:00Z' });

/** What a person calls a thing. */
export const name = z
  .string()
  .regex(
    /^[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$/,
    'expected 1 to 63 letters, digits, ".", "_" or "-", beginning and ending with a letter or digit',
  )
  .meta({ description: 'Name: 1 to 63 letters, digits, ".", "_", "-"', example: 'train-a' });

export const labels = z
  .record(z.string().min(1).max(63), z.string().max(255))
  .refine((l) => Object.keys(l).length <= 64, 'at most 64 labels')
  .meta({ description: 'Labels: name to value, at most 64' });

export const DEVICE_CLASSES = ['gpu', 'gpu.mig', 'gpu.slot', 'nic.vf', 'disk', 'node'] as const;
export const deviceClass = z.enum(DEVICE_CLASSES).meta({ description: 'Class of a device' });

/** Path of an item. */
export const itemParams = <K extends IdKind>(kind: K) => z.strictObject({ id: id(kind) });

export const LIST_LIMIT_MAX = 200;

/** The query of every list, with the filters of one. */
export const listQuery = <S extends z.ZodRawShape>(filters: S) =>
  z.strictObject({
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(LIST_LIMIT_MAX)
      .default(50)
      .meta({ description: 'Items a page, 1 to 200' }),
    cursor: z.string().min(1).max(2048).optional().meta({ description: 'nextCursor of the page before' }),
    order: z.enum(['asc', 'desc']).default('asc').meta({ description: 'By time of creation' }),
    ...filters,
  });

/** The answer of every list. */
export const page = <T extends z.ZodType>(item: T) =>
  z.object({
    items: z.array(item),
    nextCursor: z.string().optional().meta({ description: 'Present when there is more' }),
  });

/** Version of a thing that two people may edit; also its ETag. */
export const version = z.number().int().positive().meta({ description: 'Rises with every change; the ETag' });

/** Answer of a verb that leaves nothing to show. */
export const nothing = z.object({}).meta({ description: 'Nothing to show' });
