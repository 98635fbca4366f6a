/** From an HTTP request to what a handler takes. Whatever is wrong is said by the name of the field. */
import type { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { type FieldError, problem } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';

export const BODY_BYTES_MAX = 256 * 1024;

const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The caller's own id of the request when it is well-formed, else a fresh one. */
export function requestIdOf(request: Request): string {
  const given = request.headers.get('x-request-id');
  return given !== null && REQUEST_ID.test(given) ? given : crypto.randomUUID();
}

export function traceparentOf(request: Request): string | undefined {
  const given = request.headers.get('traceparent');
  return given !== null && TRACEPARENT.test(given) ? given : undefined;
}

export function bearerOf(request: Request): string | undefined {
  return /^Bearer +(\S{1,4096})$/i.exec(request.headers.get('authorization') ?? '')?.[1];
}

const invalid = (errors: readonly FieldError[]) =>
  problem('INVALID_REQUEST', errors.map((e) => `${e.field}: ${e.message}`).join('; '), { errors });

export function idempotencyKeyOf(request: Request, operation: Operation): string | undefined {
  const key = request.headers.get('idempotency-key');
  if (key === null) {
    if (!operation.idempotent) return undefined;
    throw problem('IDEMPOTENCY_KEY_REQUIRED', `${operation.name} needs an Idempotency-Key`);
  }
  if (!IDEMPOTENCY_KEY.test(key))
    throw invalid([{ field: 'Idempotency-Key', message: 'expected 1 to 255 visible ASCII characters' }]);
  return operation.idempotent ? key : undefined;
}

/** The version in `If-Match: "7"`. */
export function ifMatchOf(request: Request): string | undefined {
  const given = request.headers.get('if-match');
  if (given === null) return undefined;
  const version = /^"?(\d{1,15})"?$/.exec(given.trim())?.[1];
  if (version === undefined)
    throw invalid([{ field: 'If-Match', message: 'expected the ETag of the thing, such as "7"' }]);
  return version;
}

/** `devices[0].count` */
function pathOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (text, part) =>
      typeof part === 'number' ? `${text}[${part}]` : text === '' ? String(part) : `${text}.${String(part)}`,
    '',
  );
}

const ERRORS_MAX = 20;

/** Every issue with the path to its field; an unknown field is named itself. */
function fieldErrors(issues: readonly z.core.$ZodIssue[]): FieldError[] {
  return issues
    .flatMap((issue): FieldError[] => {
      if (issue.code === 'unrecognized_keys') {
        return issue.keys.map((key) => ({ field: pathOf([...issue.path, key]), message: 'there is no such field' }));
      }
      return [{ field: pathOf(issue.path) || 'body', message: issue.message }];
    })
    .slice(0, ERRORS_MAX);
}

function parse(schema: z.ZodType, value: unknown): unknown {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw invalid(fieldErrors(parsed.error.issues));
  return parsed.data;
}

async function readBody(request: Request): Promise<unknown> {
  const type = request.headers.get('content-type') ?? '';
  const length = request.headers.get('content-length');
  if (Number(length ?? 0) > BODY_BYTES_MAX) throw tooLarge();
  const text =
    request.body === null
      ? ''
      : length === null
        ? await unannounced(request.body)
        : decoded(await request.arrayBuffer());
  // A verb without anything to say may come without a body.
  if (text === '') return {};
  if (!/^application\/([a-z0-9.+-]+\+)?json\s*(;|$)/i.test(type)) {
    throw problem('UNSUPPORTED_MEDIA_TYPE', `the body is ${type === '' ? 'of no stated type' : type}`);
  }
  try {
    return JSON.parse(text);
  } catch (e) {
    throw invalid([{ field: 'body', message: `not JSON: ${(e as Error).message}` }]);
  }
}

const tooLarge = () =>
  problem('PAYLOAD_TOO_LARGE', `the body is larger than ${BODY_BYTES_MAX} bytes`, { limitBytes: BODY_BYTES_MAX });

function decoded(bytes: ArrayBuffer | Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw invalid([{ field: 'body', message: 'not UTF-8' }]);
  }
}

/** A body without an announced length is read piece by piece, and no further than it may be long. */
async function unannounced(body: ReadableStream<Uint8Array>): Promise<string> {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > BODY_BYTES_MAX) {
      await reader.cancel();
      throw tooLarge();
    }
    chunks.push(value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const c of chunks) {
    all.set(c, at);
    at += c.byteLength;
  }
  return decoded(all);
}

/** Path and query fields side by side, the body under `body`, each as its schema made it. */
export async function inputOf(c: Context, operation: Operation): Promise<Record<string, unknown>> {
  const params = operation.params === undefined ? {} : (parse(operation.params, c.req.param()) as object);
  const query = operation.query === undefined ? noQuery(c) : (parse(operation.query, c.req.query()) as object);
  if (operation.method === 'get') return { ...params, ...query };
  const body = await readBody(c.req.raw);
  if (operation.body === undefined) {
    const unknown = Object.keys(body as object);
    if (unknown.length > 0) throw invalid(unknown.map((field) => ({ field, message: 'there is no such field' })));
    return { ...params, ...query };
  }
  return { ...params, ...query, body: parse(operation.body, body) };
}

function noQuery(c: Context): object {
  const unknown = Object.keys(c.req.query());
  if (unknown.length > 0) throw invalid(unknown.map((field) => ({ field, message: 'there is no such parameter' })));
  return {};
}
