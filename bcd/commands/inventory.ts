/** `bcd inventory`: reads this machine and shows what the control plane would learn, without sending anything. */
import { Command } from 'commander';
import { reviewInventory } from '#core/inventory/review.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
import { LinuxHands } from '../hands/linux/hands.ts';

export function inventoryCommand(): Command {
  return new Command('inventory')
    .description('read the hardware of this machine and print it')
    .option('--json', 'print the whole document, with devices, conditions and the hardware key')
    .option('--root <dir>', 'read a captured copy of /sys, /proc and /etc instead of this machine', '/')
    .action(async (options: { json?: boolean; root: string }) => {
      const inventory = await new LinuxHands({ root: options.root }).collectInventory();
      const review = await reviewInventory({
        known: {},
        incoming: inventory.sections,
        devices: [],
        faults: [],
        poolClass: 'metal-host',
        now: fromMillis(systemClock.now()),
      });
      const { devices, conditions, hardwareKey } = review;
      if (options.json === true) {
        process.stdout.write(`${JSON.stringify({ ...inventory, hardwareKey, devices, conditions }, null, 2)}\n`);
        return;
      }
      const { system, cpu, memory, gpus } = inventory.sections;
      const lines = [
        `host      ${system.hostname ?? '-'}  ${[system.vendor, system.product].filter(Boolean).join(' ') || 'no SMBIOS'}`,
        `cpu       ${cpu.model ?? '-'}, ${cpu.threads ?? '?'} threads`,
        `memory    ${memory.totalBytes === undefined ? '-' : `${(memory.totalBytes / 1024 ** 3).toFixed(1)} GiB`}`,
        `gpus      ${gpus.status}, ${gpus.gpus.length}`,
        `identity  ${hardwareKey.trusted ? 'trusted' : 'untrusted'} ${hardwareKey.key.slice(0, 16)}`,
        ...devices.map(
          (d) =>
            `device    ${d.class.padEnd(8)} ${d.stableId}  ${d.bookable ? 'bookable' : 'not bookable'}, ${d.health}${d.healthReason === undefined ? '' : ` (${d.healthReason})`}`,
        ),
        ...conditions.map((c) => `condition ${c.type}${c.subject === '' ? '' : ` ${c.subject}`}: ${c.message}`),
      ];
      process.stdout.write(`${lines.join('\n')}\n`);
    });
}
