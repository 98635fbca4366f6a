/** Readable pages made from the tables: the reference of operations, and the list of errors. No scripts, no network. */
import { html, raw } from 'hono/html';
import { ERRORS } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { OPERATIONS } from '#core/operations.ts';

const STYLE = `
  :root { color-scheme: light dark; --line: #8884; --soft: #8881; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
  code { font: 13px ui-monospace, monospace; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
  table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
  tr:target { background: var(--soft); } .verb { display: inline-block; min-width: 3.6rem; font-weight: 600; }
`;

const page = (title: string, body: unknown) => html`<!doctype html>
<html lang="en"><head><meta charset="utf-8" /><meta name="viewport" content="width=device-width" /><title>${title}</title>
<style>${raw(STYLE)}</style></head><body>${body}</body></html>`;

interface JsonSchema {
  readonly properties?: Readonly<
    Record<string, { description?: string; type?: string; enum?: readonly string[]; default?: unknown }>
  >;
  readonly required?: readonly string[];
}

function fieldsOf(o: Operation) {
  const parts = [
    ['query', o.query],
    ['body', o.body],
  ] as const;
  return parts.flatMap(([where, schema]) => {
    if (schema === undefined) return [];
    const json = (schema as unknown as { toJSONSchema(p: object): JsonSchema }).toJSONSchema({
      io: 'input',
      unrepresentable: 'any',
    });
    return Object.entries(json.properties ?? {}).map(([field, f]) => ({
      where,
      field,
      required: json.required?.includes(field) === true,
      text: [
        f.description ?? '',
        f.enum === undefined ? '' : `one of ${f.enum.join(', ')}`,
        f.default === undefined ? '' : `default ${JSON.stringify(f.default)}`,
      ]
        .filter((t) => t !== '')
        .join('; '),
    }));
  });
}

const operationSection = (o: Operation) => html`
  <h3 id="${o.name}">${o.name}</h3>
  <p>${o.help}.</p>
  <p><code><span class="verb">${o.method.toUpperCase()}</span> ${o.path}</code></p>
  <p>Asks IAM for <code>${o.iam.action}</code> on <code>${o.iam.resource}</code>.
  ${o.idempotent ? html` Needs an <code>Idempotency-Key</code>.` : ''}${o.etag === true ? html` Answers an <code>ETag</code> and honours <code>If-Match</code>.` : ''}
  ${o.errors.length === 0 ? '' : html` Own errors: ${o.errors.map((e) => html`<a href="/v1/errors#${e}"><code>${e}</code></a> `)}`}</p>
  ${
    fieldsOf(o).length === 0
      ? ''
      : html`<table><tr><th>Field</th><th>In</th><th></th><th>Meaning</th></tr>
  ${fieldsOf(o).map((f) => html`<tr><td><code>${f.field}</code></td><td>${f.where}</td><td>${f.required ? 'required' : ''}</td><td>${f.text}</td></tr>`)}</table>`
  }`;

export function referencePage() {
  const operations = Object.values(OPERATIONS) as unknown as Operation[];
  const groups = [...new Set(operations.map((o) => o.name.split('.')[0]!))];
  return page(
    'Better Compute API',
    html`<h1>Better Compute API</h1>
  <p>JSON over HTTPS with a bearer token. Ids show their kind; times are RFC 3339 in UTC, durations whole seconds.
  Machine-readable: <a href="/v1/openapi.json"><code>/v1/openapi.json</code></a>. Errors: <a href="/v1/errors"><code>/v1/errors</code></a>.</p>
  <p>${groups.map((g) => html`<a href="#group-${g}">${g}</a> `)}</p>
  ${groups.map((g) => html`<h2 id="group-${g}">${g}</h2>${operations.filter((o) => o.name.split('.')[0] === g).map(operationSection)}`)}`,
  );
}

export function errorsPage() {
  return page(
    'Better Compute errors',
    html`<h1>Errors</h1>
  <p>Every error is an RFC 9457 problem with a stable <code>code</code>. <code>retry</code> says how it may be tried again:
  never, with the same idempotency key, or after <code>retryAfterSeconds</code>.</p>
  <table><tr><th>Code</th><th>HTTP</th><th>Retry</th><th>Meaning</th><th>What to do</th></tr>
  ${Object.entries(ERRORS).map(([code, e]) => html`<tr id="${code}"><td><code>${code}</code></td><td>${e.http}</td><td>${e.retry}</td><td>${e.title}</td><td>${e.wayOut}</td></tr>`)}</table>`,
  );
}
