/** `npm run sim -- <name> [--seed N] …`. The last line is JSON; exit 1 when `ok` is false. */
import { Command } from 'commander';
import { bookings } from './bookings.ts';
import { capacity } from './capacity.ts';

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

program
  .command('capacity')
  .description('Requests, gangs, windows, spot, failures and crashes under a simulated clock; each seed runs twice')
  .option('--seed <n>', 'seed of every random choice', '1')
  .option('--seeds <n>', 'so many seeds, from that one on', '1')
  .option('--hours <n>', 'simulated hours', '72')
  .option('--nodes <n>', 'machines of 8 GPUs', '24')
  .option('--tenants <n>', 'tenants', '6')
  .option('--once', 'run each seed once, without comparing traces')
  .action(async (f: { seed: string; seeds: string; hours: string; nodes: string; tenants: string; once?: boolean }) => {
    const runs = [];
    for (let seed = Number(f.seed); seed < Number(f.seed) + Number(f.seeds); seed++) {
      const o = { seed, hours: Number(f.hours), nodes: Number(f.nodes), tenants: Number(f.tenants) };
      const run = await capacity(o);
      const again = f.once === true ? run : await capacity(o);
      const errors = [...(run['errors'] as string[])];
      if (again['trace'] !== run['trace']) errors.push('two runs of one seed took different courses');
      const judged = { ...run, ok: run['ok'] === true && errors.length === 0, errors };
      console.error(JSON.stringify(judged));
      runs.push(judged);
    }
    const ok = runs.length > 0 && runs.every((r) => r.ok);
    console.log(JSON.stringify({ ok, runs }));
    process.exitCode = ok ? 0 : 1;
  });

await program.parseAsync();
