/** docs/reference/errors.md */
import { ERRORS, type ErrorSpec } from '#core/kernel/errors.ts';
import { CONSTRAINTS } from '#db/constraints.ts';
import { code, page, table } from './markdown.ts';

const RETRY = {
  never: 'not as it is',
  'same-key': 'with the same idempotency key',
  after: 'after `retryAfterSeconds`, with the same idempotency key',
} as const;

/** Numbers of google.rpc.Code, by name. */
const GRPC = [
  ...['OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS'],
  ...['PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED'],
  ...['INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED'],
];

function section([name, e]: [string, ErrorSpec]): string {
  const rules = Object.entries(CONSTRAINTS).flatMap(([constraint, meaning]) =>
    'code' in meaning && meaning.code === name ? [`${code(constraint)} (${meaning.detail})`] : [],
  );
  return [
    `## ${name}`,
    `${e.title}. **What to do:** ${e.wayOut}`,
    table(
      ['HTTP', 'gRPC', 'Exit code', 'Try again'],
      [[String(e.http), `${e.grpc} ${GRPC[e.grpc]}`, String(e.exit), RETRY[e.retry]]],
    ),
    rules.length === 0 ? '' : `Rules of the database that answer so: ${rules.join('; ')}.`,
  ]
    .filter((p) => p !== '')
    .join('\n\n');
}

export function errorsPage(): string {
  return page(
    'Errors',
    'Every error of the API is an RFC 9457 problem (`application/problem+json`) with a stable `code`, a `detail` for people, `wayOut` and `requestId`; `errors` names the fields that are wrong. The gateway answers the same codes with the gRPC status, the command line ends with the exit code. Exit code 1 is a fault of ours, 2 a wrong call.',
    ...Object.entries(ERRORS).map(section),
  );
}
