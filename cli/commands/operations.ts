/**
 * One command an operation, from the table: `better-compute reservations create --pool-id … --devices class=gpu,count=3`.
 * Nothing here knows a capability by name.
 */
import type { Command } from 'commander';
import { problem } from '#core/kernel/errors.ts';
import type { Operation } from '#core/kernel/operations.ts';
import { systemClock } from '#core/kernel/time.ts';
import { OPERATIONS } from '#core/operations.ts';
import { STATE_TABLES } from '#core/states.ts';
import { type Client, createClient } from '#sdk/client.ts';
import { resolveContext } from '../contexts.ts';
import { render } from '../print.ts';
import { type FieldOption, optionsOf } from '../schema-options.ts';
import { printEvents } from './watch.ts';

const WAIT_SECONDS_MAX = 600;
const POLL_MS = 500;

export interface GlobalFlags {
  url?: string;
  token?: string;
  context?: string;
  json?: boolean;
  ids?: boolean;
}

const dashed = (name: string) => name.replaceAll(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);

/** `joinTokens.create` -> `join-tokens create`; an operation without a dot is a command by itself. */
export function commandPath(operation: string): string[] {
  return operation.split('.').map(dashed);
}

function groupOf(program: Command, path: readonly string[]): Command {
  if (path.length === 1) return program;
  const name = path[0]!;
  return (
    program.commands.find((c) => c.name() === name) ??
    program.command(name).description(`${name}: see "better-compute ${name} --help"`)
  );
}

function gather(fields: readonly FieldOption[], flags: Record<string, unknown>): Record<string, unknown> {
  const input: Record<string, unknown> = {};
  for (const f of fields) {
    const raw = flags[f.option.attributeName()];
    if (raw !== undefined) input[f.field] = f.parse(raw);
  }
  return input;
}

/** States in which a thing of this machine stays by itself. */
function isSettled(operation: string, state: string): boolean {
  const collection = operation.split('.')[0]!;
  const table = STATE_TABLES.find((t) => `${t.name}s` === collection);
  return table?.states[state]?.settled === true;
}

/** Follows a thing until its state settles. Throws DEADLINE_EXCEEDED with what it waits for. */
async function waitSettled(client: Client, operation: string, first: { id: string; state: string }): Promise<unknown> {
  const get = `${operation.split('.')[0]}.get`;
  const until = systemClock.now() + WAIT_SECONDS_MAX * 1000;
  let seen: { id: string; state: string } = first;
  while (!isSettled(operation, seen.state)) {
    if (systemClock.now() > until) {
      throw problem(
        'DEADLINE_EXCEEDED',
        `${first.id} is still ${seen.state} after ${WAIT_SECONDS_MAX} s; "explain ${first.id}" says why`,
      );
    }
    await systemClock.sleep(POLL_MS);
    seen = (await client.call(get, { id: first.id })) as typeof seen;
  }
  return seen;
}

/** Of a list its items', of a thing its own. */
function idsOf(answer: unknown): string[] {
  const { items, id } = (answer ?? {}) as { items?: readonly { id?: string }[]; id?: string };
  return (items ?? [{ id }]).flatMap((i) => (i.id === undefined ? [] : [i.id]));
}

async function run(
  name: string,
  operation: Operation,
  input: Record<string, unknown>,
  flags: GlobalFlags & { wait?: boolean; idempotencyKey?: string; ifMatch?: string },
): Promise<void> {
  const { url, token } = resolveContext(flags);
  const client = createClient({ baseUrl: url, token });
  if (operation.stream === 'sse') return printEvents({ url, token, input, json: flags.json === true });
  let answer: unknown = await client.call(name, input, {
    ...(flags.idempotencyKey === undefined ? {} : { idempotencyKey: flags.idempotencyKey }),
    ...(flags.ifMatch === undefined ? {} : { ifMatch: flags.ifMatch }),
  });
  const { state } = (answer ?? {}) as { state?: string };
  if (flags.wait === true && state !== undefined) answer = await waitSettled(client, name, answer as never);
  if (flags.ids === true) for (const id of idsOf(answer)) console.log(id);
  else console.log(flags.json === true ? JSON.stringify(answer ?? null) : render(answer, operation.columns));
}

export function addOperations(program: Command): void {
  for (const [name, operation] of Object.entries(OPERATIONS) as [string, Operation][]) {
    const path = commandPath(name);
    const command = groupOf(program, path)
      .command(path[path.length - 1]!)
      .description(operation.help);
    const params = [...operation.path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]!);
    for (const p of params) command.argument(`<${dashed(p)}>`);
    const fields = [...optionsOf(operation.query), ...optionsOf(operation.body)];
    for (const f of fields) {
      if (f.required) f.option.makeOptionMandatory();
      command.addOption(f.option);
    }
    if (operation.idempotent)
      command.option('--idempotency-key <key>', 'repeat an earlier call safely; one is made up otherwise');
    if (operation.etag === true)
      command.option('--if-match <version>', 'refuse unless the thing still has this version');
    if (operation.method !== 'get' && 'state' in shapeOf(operation))
      command.option('--wait', 'wait until the state settles');
    command.action(async (...args: unknown[]) => {
      const values = args.slice(0, params.length) as string[];
      const input = { ...gather(fields, command.opts()), ...Object.fromEntries(params.map((p, i) => [p, values[i]])) };
      await run(name, operation, input, command.optsWithGlobals());
    });
  }
}

function shapeOf(operation: Operation): Record<string, unknown> {
  return (operation.output as unknown as { shape?: Record<string, unknown> }).shape ?? {};
}
