/** `npm run bench <name> [-- --json]`: the product and its ceiling side by side in one run. */
import { Command, InvalidArgumentError } from 'commander';
import { admission } from './admission.ts';

const whole = (text: string) => {
  const n = Number(text);
  if (Number.isInteger(n) && n >= 1) return n;
  throw new InvalidArgumentError('expected a whole number of at least 1');
};

const program = new Command('bench').description(
  'Benchmarks: each prints ratios to a ceiling measured in the same run.',
);

program
  .command('admission')
  .description('Reservations admitted a second: API, service, SQL function, plain insert')
  .option('--clients <n>', 'clients at once', whole, 8)
  .option('--seconds <n>', 'seconds a round', whole, 3)
  .option('--rounds <n>', 'rounds of each arm', whole, 3)
  .option('--nodes <n>', 'machines of 8 GPUs', whole, 4000)
  .option('--json', 'print JSON alone')
  .action(async ({ json, ...o }: { clients: number; seconds: number; rounds: number; nodes: number; json?: true }) => {
    const result = await admission(o);
    if (json === true) {
      console.log(JSON.stringify(result));
      return;
    }
    console.log('arm        per second      p50 ms      p99 ms   CPU ms: postgres  worker  client');
    for (const [name, f] of Object.entries(result.arms)) {
      const cells = [f.perSecond.toFixed(0).padStart(10), f.p50.toFixed(2).padStart(11), f.p99.toFixed(2).padStart(11)];
      const cpu = [f.cpuMs.postgres, f.cpuMs.worker, f.cpuMs.client].map((c) => c.toFixed(2).padStart(8));
      console.log(`${name.padEnd(10)} ${cells.join(' ')}         ${cpu.join('')}`);
    }
    for (const [name, value] of Object.entries(result.ratios)) console.log(`${name.padEnd(18)} ${value}`);
    console.log(`deadlocks          ${result.deadlocks}`);
    console.log('one admission inside Postgres, microseconds in the function itself:');
    for (const row of result.profile) {
      console.log(`  ${row.function.padEnd(28)} ${row.selfUs.toFixed(1).padStart(8)}   ${row.callsEach} calls`);
    }
  });

await program.parseAsync();
