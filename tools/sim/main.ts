/** `npm run sim -- <name> [--seed N] …`. The last line is JSON; exit 1 when `ok` is false. */
import { Command } from 'commander';
import { bookings } from './bookings.ts';

const program = new Command('sim').description('Seeded simulations that check the books by other means than the code.');

program
  .command('bookings')
  .description('Clients fight over a small fleet; checks that nothing is promised twice, lost or stuck')
  .option('--seed <n>', 'seed of every random choice', '1')
  .option('--clients <n>', 'clients at once', '200')
  .option('--requests <n>', 'reservations asked for, in all', '10000')
  .option('--nodes <n>', 'machines of 8 GPUs', '64')
  .option('--placer <which>', 'product, random or both', 'both')
  .action(async (f: { seed: string; clients: string; requests: string; nodes: string; placer: string }) => {
    const runs = [];
    for (const placer of ['product', 'random'] as const) {
      if (f.placer !== 'both' && f.placer !== placer) continue;
      const run = await bookings({
        seed: Number(f.seed),
        clients: Number(f.clients),
        requests: Number(f.requests),
        nodes: Number(f.nodes),
        placer,
      });
      console.error(JSON.stringify(run));
      runs.push(run);
    }
    const ok = runs.length > 0 && runs.every((r) => r['ok'] === true);
    console.log(JSON.stringify({ ok, runs }));
    process.exitCode = ok ? 0 : 1;
  });

await program.parseAsync();
