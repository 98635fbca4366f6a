/** Every operation against everything that must know it: route, handler, command, reference, no-rights test. */
import { existsSync, readFileSync } from 'node:fs';
import { commandPath } from '#cli/commands/operations.ts';
import { buildProgram } from '#cli/program.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { IAM_ACTIONS_OF_COMPUTE, OPERATIONS } from '#core/operations.ts';
import { REQUESTS } from '#kit/requests.ts';
import { apiApp } from '#workers/api/app.ts';
import { HANDLERS } from '#workers/api/handlers.ts';
import type { Finding } from '../gate.ts';

const REFERENCE = 'docs/reference/operations.md';
const reference = existsSync(REFERENCE) ? readFileSync(REFERENCE, 'utf8') : '';
const program = buildProgram();
const routes = new Set(
  apiApp({ services: {}, handlers: {}, streams: {}, publicUrl: '', ready: async () => {} } as never).routes.map(
    (r) => `${r.method} ${r.path}`,
  ),
);

function hasCommand(name: string): boolean {
  let at = program;
  for (const word of commandPath(name)) {
    const next = at.commands.find((c) => c.name() === word);
    if (next === undefined) return false;
    at = next;
  }
  return true;
}

const findings: Finding[] = [];
const miss = (file: string, what: string, mend: string) => findings.push({ file, what, mend });

for (const [key, o] of Object.entries(OPERATIONS) as [string, Operation][]) {
  const place = 'core/operations.ts';
  if (o.name !== key) miss(place, `${key} calls itself ${o.name}`, 'give both the same name');
  if (!routes.has(`${o.method.toUpperCase()} ${o.path.replaceAll(/\{(\w+)\}/g, ':$1')}`))
    miss('workers/api/app.ts', `${key} has no route`, 'mount it as all others are');
  if (o.stream === undefined && typeof HANDLERS[key] !== 'function')
    miss('workers/api/handlers.ts', `${key} has no handler`, 'write it in its service and add the service there');
  if (!hasCommand(key)) miss('cli/commands/operations.ts', `${key} has no command`, 'let the table make it');
  if (!reference.includes(`\n### ${o.name}\n`)) miss(REFERENCE, `${key} is not in the reference`, 'run `npm run gen`');
  if (!IAM_ACTIONS_OF_COMPUTE.includes(o.iam.action))
    miss(place, `no policy can name ${o.iam.action}`, 'add it to the catalog of actions');
  if (!Object.hasOwn(REQUESTS, key))
    miss(
      'test/kit/requests.ts',
      `${key} is not tried by callers without rights`,
      'add a request that is otherwise valid',
    );
}
for (const key of Object.keys(REQUESTS))
  if (!Object.hasOwn(OPERATIONS, key)) miss('test/kit/requests.ts', `${key} is no operation`, 'take it out');

console.log(JSON.stringify(findings));
