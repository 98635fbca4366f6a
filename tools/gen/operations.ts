/** docs/reference/operations.md */
import { commandPath } from '#cli/commands/operations.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { OPERATIONS } from '#core/operations.ts';
import { fieldRows } from './fields.ts';
import { anchor, code, page, table } from './markdown.ts';

const ON = {
  collection: 'the collection, before anything is read',
  item: 'the item that `{id}` names',
  draft: 'the draft that the request becomes',
} as const;

const COLUMNS = ['Field', 'Type', '', 'Meaning'];

function section(o: Operation): string {
  const args = [...o.path.matchAll(/\{(\w+)\}/g)].map((m) => ` <${m[1]}>`).join('');
  const facts = [
    `${code(`${o.method.toUpperCase()} ${o.path}`)}`,
    `Command: ${code(`better-compute ${commandPath(o.name).join(' ')}${args}`)}`,
    `Asks IAM for ${code(o.iam.action)} on ${code(o.iam.resource)}: ${ON[o.iam.on]}.${
      o.iam.rootOnly === true ? ' Only for the platform’s own tenant.' : ''
    }`,
    o.idempotent ? 'Takes an `Idempotency-Key` and answers a repetition as it answered first.' : '',
    o.etag === true
      ? o.method === 'get'
        ? 'Answers the version as `ETag`.'
        : 'Honours `If-Match` with the version of the thing.'
      : '',
    o.stream === 'sse' ? 'Answers a stream of server-sent events.' : `Answers ${o.successStatus}.`,
    o.errors.length === 0 ? '' : `Own errors: ${o.errors.map((e) => `[${e}](errors.md#${anchor(e)})`).join(', ')}.`,
  ].filter((f) => f !== '');
  const given = [
    ...(o.query === undefined ? [] : fieldRows(o.query, 'input')),
    ...(o.body === undefined ? [] : fieldRows(o.body, 'input')),
  ];
  const answered = fieldRows(o.output, 'output');
  return [
    `### ${o.name}`,
    `${o.help}.`,
    facts.map((f) => `- ${f}`).join('\n'),
    given.length === 0 ? '' : `Input:\n\n${table(COLUMNS, given)}`,
    answered.length === 0 ? '' : `Answer:\n\n${table(COLUMNS, answered)}`,
  ]
    .filter((p) => p !== '')
    .join('\n\n');
}

export function operationsPage(): string {
  const operations = Object.values(OPERATIONS) as unknown as Operation[];
  const groups = [...new Set(operations.map((o) => o.name.split('.')[0]!))];
  const overview = table(
    ['Operation', 'Request', 'What it does'],
    operations.map((o) => [`[${o.name}](#${anchor(o.name)})`, code(`${o.method.toUpperCase()} ${o.path}`), o.help]),
  );
  return page(
    'Operations',
    'JSON over HTTPS with a bearer token. Ids show their kind; times are RFC 3339 in UTC with microseconds, durations whole seconds. A field that is not known is refused. Lists are paged by `cursor`. Every operation can also answer the errors that concern any request: see [errors](errors.md).',
    overview,
    ...groups.flatMap((g) => [`## ${g}`, ...operations.filter((o) => o.name.split('.')[0] === g).map(section)]),
  );
}
