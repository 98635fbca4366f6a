/** `bcd node`: the daemon on a machine that has joined. Runs until SIGTERM or SIGINT. */
import { join } from 'node:path';
import { Command } from 'commander';
import { problem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import { DEFAULT_CDI_DIRECTORY } from '../hands/cdi-directory.ts';
import { LinuxHands } from '../hands/linux/hands.ts';
import { loadIdentity } from '../journal/identity.ts';
import { holdInstance } from '../journal/instance-lock.ts';
import { openJournal } from '../journal/journal.ts';
import { runDaemon } from '../session/daemon.ts';
import { daemonLog, untilStopped } from './run-until-stopped.ts';
import { DEFAULT_STATE_DIRECTORY, JOURNAL_FILE } from './status.ts';

export function nodeCommand(): Command {
  return new Command('node')
    .description('run the daemon of a machine that has joined')
    .option('--state-dir <dir>', 'where identity and journal are kept', DEFAULT_STATE_DIRECTORY)
    .option('--cdi-dir <dir>', 'where CDI specs are written', DEFAULT_CDI_DIRECTORY)
    .action(async ({ stateDir, cdiDir }: { stateDir: string; cdiDir: string }) => {
      const identity = await loadIdentity(stateDir);
      if (identity === undefined) throw problem('CONFLICT', `no identity in ${stateDir}; run \`bcd join\` first`);
      const lock = holdInstance(stateDir);
      const journal = openJournal(join(stateDir, JOURNAL_FILE), { clock: systemClock });
      try {
        const log = daemonLog({ nodeId: identity.nodeId });
        await runDaemon({
          hands: new LinuxHands({ cdiDirectory: cdiDir }),
          journal,
          identity,
          stateDirectory: stateDir,
          clock: systemClock,
          signal: untilStopped(),
          log,
          onWelcome: (w) =>
            process.stdout.write(`session ${JSON.stringify({ nodeId: identity.nodeId, epoch: Number(w.epoch) })}\n`),
        });
      } finally {
        journal.close();
        lock.release();
      }
    });
}
