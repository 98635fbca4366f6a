/** `bcd status`: who this machine is to the control plane and what its journal holds. Works while the daemon runs. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { systemClock, toMillis } from '#core/kernel/time.ts';
import { cdiDirectory, DEFAULT_CDI_DIRECTORY } from '../hands/cdi-directory.ts';
import { loadIdentity } from '../journal/identity.ts';
import { readJournalStatus } from '../journal/status.ts';
import { BCD_VERSION } from '../version.ts';

export const DEFAULT_STATE_DIRECTORY = '/var/lib/bettercompute';
export const JOURNAL_FILE = 'journal.db';

export function statusCommand(): Command {
  return new Command('status')
    .description('show the identity, the journal and the CDI files of this machine')
    .option('--state-dir <dir>', 'where identity and journal are kept', DEFAULT_STATE_DIRECTORY)
    .option('--cdi-dir <dir>', 'where CDI specs are written', DEFAULT_CDI_DIRECTORY)
    .option('--json', 'print JSON')
    .action(async (options: { stateDir: string; cdiDir: string; json?: boolean }) => {
      const identity = await loadIdentity(options.stateDir);
      const path = join(options.stateDir, JOURNAL_FILE);
      const journal = existsSync(path) ? readJournalStatus(path) : undefined;
      const status = {
        version: BCD_VERSION,
        joined: identity !== undefined,
        nodeId: identity?.nodeId,
        spiffeId: identity?.spiffeId,
        gateways: identity?.gateways,
        certificate:
          identity === undefined
            ? undefined
            : { notAfter: identity.notAfter, valid: toMillis(identity.notAfter) > systemClock.now() },
        journal,
        cdi: [...(await cdiDirectory(options.cdiDir).list()).keys()],
      };
      if (options.json === true) {
        process.stdout.write(`${JSON.stringify(status, null, 2)}\n`);
        return;
      }
      const lines = [
        `version      ${status.version}`,
        `node         ${status.nodeId ?? 'not joined; run `bcd join`'}`,
        ...(status.certificate === undefined
          ? []
          : [`certificate  ${status.certificate.valid ? 'valid' : 'LAPSED'} until ${status.certificate.notAfter}`]),
        ...(status.gateways === undefined ? [] : [`gateways     ${status.gateways.join(', ')}`]),
        `journal      ${journal === undefined ? 'none' : `${journal.id}, ${journal.open} commands open, ${journal.unacknowledged} entries to send`}`,
        `cdi          ${status.cdi.length === 0 ? 'no files' : status.cdi.join(', ')}`,
      ];
      process.stdout.write(`${lines.join('\n')}\n`);
    });
}
