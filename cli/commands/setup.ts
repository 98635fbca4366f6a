/** `setup`: brings a deployment's database up to date, and on an empty one makes the first operator and organisation. */
import type { Command } from 'commander';
import { problem } from '#core/kernel/errors.ts';

interface Flags {
  readonly databaseUrl?: string;
  readonly organisation: string;
}

/** `Acme Robotics` -> `acme-robotics`. */
const slugOf = (name: string) =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');

export function addSetup(program: Command): void {
  program
    .command('setup')
    .description("Migrate a deployment's database; on an empty one, make the first operator and organisation")
    .option('--database-url <url>', 'its direct connection string (or DATABASE_URL in the environment)')
    .option('--organisation <name>', 'name of the first organisation', 'Acme')
    .action(async (_flags, command: Command) => {
      const flags = command.opts<Flags>();
      const url = flags.databaseUrl ?? process.env['DATABASE_URL'];
      if (url === undefined || !URL.canParse(url)) {
        throw problem('INVALID_REQUEST', 'there is no database to set up', {
          errors: [{ field: 'database-url', message: 'expected postgres://user:password@host/database' }],
        });
      }
      // Only this command opens a database; nothing else pays for loading the driver.
      const { setUpDatabase } = await import('../dev/setup.ts');
      const report = await setUpDatabase(url, { name: flags.organisation, slug: slugOf(flags.organisation) });
      if (command.optsWithGlobals<{ json?: boolean }>().json === true) console.log(JSON.stringify(report));
      else for (const [name, value] of Object.entries(report)) console.log(`${name.padEnd(14)} ${value}`);
    });
}
