/**
 * The daemon's command line: a thin table of subcommands, each in its own file under commands/. Errors become one line
 * and the exit code of the registry; a stack is shown only for a fault of ours.
 */
import { Command, CommanderError } from 'commander';
import { isProblem } from '#core/kernel/errors.ts';
import { COMMANDS } from './commands/table.ts';
import { BCD_VERSION } from './version.ts';

export function program(): Command {
  const root = new Command('bcd')
    .description('The Better Compute daemon: runs on a machine and converges what the control plane wants of it.')
    .version(BCD_VERSION, '--version', 'print the version and exit')
    .showHelpAfterError()
    .exitOverride();
  for (const command of COMMANDS) root.addCommand(command());
  return root;
}

export async function main(argv: readonly string[]): Promise<number> {
  try {
    await program().parseAsync(argv, { from: 'user' });
    return process.exitCode === undefined ? 0 : Number(process.exitCode);
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (isProblem(error)) {
      process.stderr.write(`bcd: ${error.code}: ${error.message}\n`);
      const errors = (error.details as { errors?: { field: string; message: string }[] } | undefined)?.errors ?? [];
      for (const { field, message } of errors) process.stderr.write(`  ${field}: ${message}\n`);
      process.stderr.write(`  ${error.spec.wayOut}\n`);
      return error.spec.exit;
    }
    process.stderr.write(`bcd: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    return 1;
  }
}
