/** docs/reference/cli.md */
import type { Command } from 'commander';
import { program as bcdProgram } from '#bcd/main.ts';
import { buildProgram } from '#cli/program.ts';
import { code, page, table } from './markdown.ts';

function sections(command: Command, path: readonly string[]): string[] {
  const own = command.commands.length === 0 ? [section(command, path)] : [];
  return [...own, ...command.commands.flatMap((c) => sections(c, [...path, c.name()]))];
}

function section(command: Command, path: readonly string[]): string {
  const args = command.registeredArguments.map((a) => (a.required ? ` <${a.name()}>` : ` [${a.name()}]`)).join('');
  return [
    `### ${path.join(' ')}`,
    `${command.description().replace(/\.$/, '')}.`,
    code(`${path.join(' ')}${args}${command.options.length === 0 ? '' : ' [options]'}`),
    optionTable(command),
  ]
    .filter((p) => p !== '')
    .join('\n\n');
}

function optionTable(command: Command): string {
  return table(
    ['Option', 'Meaning'],
    command.options.map((o) => {
      const choices = o.argChoices === undefined ? '' : `one of ${o.argChoices.map(code).join(', ')}`;
      const preset = o.defaultValue === undefined ? '' : `default ${code(String(o.defaultValue))}`;
      return [code(o.flags), [o.description, choices, preset].filter((t) => t !== '').join('; ')];
    }),
  );
}

export function cliPage(): string {
  const product = buildProgram();
  return page(
    'Command lines',
    '## better-compute',
    'One command for each operation of the API, and a few of its own. Options that stand before the command:',
    optionTable(product),
    ...sections(product, ['better-compute']),
    '## bcd',
    'The daemon of a machine.',
    ...sections(bcdProgram(), ['bcd']),
  );
}
