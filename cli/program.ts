/** The `better-compute` command as data and as a function of its arguments; main.ts runs it. */
import { Command, CommanderError } from 'commander';
import { problemBody, toProblem } from '#core/kernel/errors.ts';
import { addContexts } from './commands/contexts.ts';
import { addOperations } from './commands/operations.ts';
import { addSetup } from './commands/setup.ts';
import { renderProblem } from './print.ts';

const USAGE_EXIT = 2;

export function buildProgram(): Command {
  const program = new Command('better-compute')
    .description('Turn racks of GPU servers into a cloud.')
    .option('--url <url>', 'base URL of the API (BETTER_COMPUTE_URL)')
    .option('--token <token>', 'token (BETTER_COMPUTE_TOKEN)')
    .option('--context <name>', 'a stored context; see "context list"')
    .option('--json', 'print the answer as one line of JSON, errors too')
    .option('--ids', 'print ids alone, one a line, for use in a shell')
    .showHelpAfterError('(add --help for the options)')
    .exitOverride();
  addContexts(program);
  program
    .command('dev')
    .description('Start a whole control plane on this machine')
    .option('--sim <machines>', 'also join so many simulated machines of 8 GPUs', '0')
    .option('--state-dir <dir>', 'where it keeps its state', '.dev')
    .option('--port <port>', 'port of the API; a free one otherwise')
    .action(async (flags: { sim: string; stateDir: string; port?: string }) => {
      // Only this command starts servers; nothing else pays for loading them.
      const { runDev } = await import('./dev/run.ts');
      await runDev({
        sim: Number(flags.sim),
        stateDir: flags.stateDir,
        ...(flags.port === undefined ? {} : { port: Number(flags.port) }),
      });
    });
  addSetup(program);
  addOperations(program);
  const inherit = (c: Command): void => {
    c.exitOverride();
    c.commands.forEach(inherit);
  };
  inherit(program);
  return program;
}

/** Answers the exit code, which comes from the registry of errors. */
export async function main(argv: readonly string[]): Promise<number> {
  const program = buildProgram();
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return 0;
  } catch (e) {
    if (e instanceof CommanderError) return e.exitCode === 0 ? 0 : USAGE_EXIT;
    const p = toProblem(e);
    if (argv.includes('--json')) console.error(JSON.stringify(problemBody(p)));
    else console.error(renderProblem(p));
    if (p.code === 'INTERNAL') console.error((p.cause as Error | undefined)?.stack ?? p.stack);
    return p.spec.exit;
  }
}
