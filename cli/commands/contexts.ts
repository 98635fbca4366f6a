/** `login`, `logout`, `context list|use`, `whoami`. */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { problem } from '#core/kernel/errors.ts';
import { forgetContext, readContexts, resolveContext, saveContext, useContext } from '../contexts.ts';
import { render } from '../print.ts';
import type { GlobalFlags } from './operations.ts';

const DEADLINE_MS = 10_000;

/** Who the identity service says this token is. Throws UNAUTHENTICATED, UNAVAILABLE. */
async function whoAmI(url: string, token: string): Promise<Record<string, unknown>> {
  const answer = await fetch(`${url}/api/iam/sts/getCallerIdentity`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'x-better-iam': '1' },
    body: '{}',
    redirect: 'error',
    signal: AbortSignal.timeout(DEADLINE_MS),
  }).catch((e: unknown) => {
    throw problem('UNAVAILABLE', `${url} does not answer: ${(e as Error).message}`, { retryAfterSeconds: 5 });
  });
  if (answer.status === 401) throw problem('UNAUTHENTICATED', `${url} does not know this token`);
  const body = (await answer.json().catch(() => ({}))) as { data?: Record<string, unknown> };
  if (body.data === undefined)
    throw problem('UNAVAILABLE', `${url} is not a Better Compute API (HTTP ${answer.status})`, {
      retryAfterSeconds: 5,
    });
  return body.data;
}

export function addContexts(program: Command): void {
  program
    .command('login')
    .description('Check a token against a deployment and keep both as a context')
    .option('--name <name>', 'name of the context', 'default')
    .addHelpText(
      'after',
      '\nGive --url and --token (or BETTER_COMPUTE_TOKEN); --token - reads the token from standard input.',
    )
    .action(async (_flags, command: Command) => {
      const f = command.optsWithGlobals<{ url?: string; token?: string; name: string }>();
      if (f.url === undefined) {
        throw problem('INVALID_REQUEST', 'no URL given', {
          errors: [{ field: 'url', message: 'pass --url, the base URL of the API' }],
        });
      }
      const given = f.token ?? process.env['BETTER_COMPUTE_TOKEN'];
      const token = given === '-' ? readFileSync(0, 'utf8').trim() : given;
      if (token === undefined) {
        throw problem('INVALID_REQUEST', 'no token given', {
          errors: [{ field: 'token', message: 'pass --token, or --token - and the token on standard input' }],
        });
      }
      const url = f.url.replace(/\/+$/, '');
      const who = await whoAmI(url, token);
      saveContext(f.name, { url, token });
      console.log(`logged in to ${url} as ${who['identityId']} of tenant ${who['tenantId']} (context "${f.name}")`);
    });
  program
    .command('logout')
    .description('Forget a context')
    .argument('[name]', 'name of the context', 'default')
    .action((name: string) => {
      forgetContext(name);
      console.log(`forgot context "${name}"`);
    });
  program
    .command('whoami')
    .description('Who the identity service says you are')
    .action(async (_flags, command: Command) => {
      const flags = command.optsWithGlobals<GlobalFlags>();
      const { url, token } = resolveContext(flags);
      const who = await whoAmI(url, token);
      console.log(flags.json === true ? JSON.stringify(who) : render({ url, ...who }));
    });
  const context = program.command('context').description('Deployments that this command line knows');
  context
    .command('list')
    .description('List the contexts')
    .action((_flags, command: Command) => {
      const file = readContexts();
      const items = Object.entries(file.contexts).map(([name, c]) => ({
        name,
        url: c.url,
        current: name === file.current,
      }));
      console.log(command.optsWithGlobals<GlobalFlags>().json === true ? JSON.stringify({ items }) : render({ items }));
    });
  context
    .command('use')
    .description('Make a context the current one')
    .argument('<name>')
    .action((name: string) => {
      useContext(name);
      console.log(`using context "${name}"`);
    });
}
