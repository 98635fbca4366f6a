/**
 * `bcd sim N`: N machines of fake hardware in one process, each with the real core, its own identity, journal, CDI
 * directory and TLS connection. They join by themselves and stay as real machines do.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { isProblem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import { FakeHands } from '../hands/fake/hands.ts';
import { loadIdentity } from '../journal/identity.ts';
import { openJournal } from '../journal/journal.ts';
import { runDaemon } from '../session/daemon.ts';
import { join } from '../session/join.ts';
import { type TrustOptions, tokenOf, trustOf } from './join.ts';
import { daemonLog, untilStopped } from './run-until-stopped.ts';
import { JOURNAL_FILE } from './status.ts';

const MACHINES_MAX = 20_000;
/** Joins that run at once; each is a connection and a signature. */
const JOINING_MAX = 8;

interface Options extends TrustOptions {
  readonly token?: string;
  readonly stateDir?: string;
  readonly gpus: number;
  readonly first: number;
}

interface Machine {
  readonly number: number;
  readonly directory: string;
  readonly hands: FakeHands;
}

const whole = (least: number, most: number) => (text: string) => {
  const n = Number(text);
  if (Number.isInteger(n) && n >= least && n <= most) return n;
  throw new InvalidArgumentError(`expected a whole number from ${least} to ${most}`);
};

export function simCommand(): Command {
  return new Command('sim')
    .description('run simulated machines: the real daemon on fake hardware')
    .argument('<machines>', 'how many', whole(1, MACHINES_MAX))
    .requiredOption('--gateway <host:port>', 'join port of a gateway')
    .option('--token <token>', 'the join token (or BCD_JOIN_TOKEN in the environment)')
    .option('--ca-pin <pin>', 'sha256/<base64>: hash of the public key of the authority to trust')
    .option('--ca-file <file>', 'PEM of the authority to trust')
    .option('--state-dir <dir>', 'where the machines live on; without it they are new with each start')
    .option('--gpus <n>', 'GPUs a machine', whole(0, 16), 8)
    .option('--first <n>', 'number of the first machine', whole(1, 60_000), 1)
    .action(async (machines: number, options: Options) => {
      const signal = untilStopped();
      const root = options.stateDir ?? (await mkdtemp(joinPath(tmpdir(), 'bcd-sim-')));
      try {
        await runFleet(machines, root, options, signal);
      } finally {
        if (options.stateDir === undefined) await rm(root, { recursive: true, force: true });
      }
    });
}

async function runFleet(count: number, root: string, options: Options, signal: AbortSignal): Promise<void> {
  const log = daemonLog({});
  const numbers = Array.from({ length: count }, (_, i) => options.first + i);
  const running: Promise<void>[] = [];
  const up = new Set<number>();
  let trustPem: Promise<string> | undefined;
  // One question for all, and asked again when it failed: the gateway may come up after us.
  const trust = () => {
    trustPem ??= trustOf(options).catch((e: unknown) => {
      trustPem = undefined;
      throw e;
    });
    return trustPem;
  };
  const start = async (number: number) => {
    const directory = joinPath(root, `machine-${String(number).padStart(5, '0')}`);
    const cdiDirectory = joinPath(directory, 'cdi');
    const hands = new FakeHands({ number, clock: systemClock, gpus: options.gpus, cdiDirectory });
    const identity =
      (await loadIdentity(directory)) ?? (await admit({ number, directory, hands }, trust, options, signal));
    const journal = openJournal(options.stateDir === undefined ? ':memory:' : joinPath(directory, JOURNAL_FILE), {
      clock: systemClock,
    });
    const about = { machine: number, nodeId: identity.nodeId };
    const daemon = runDaemon({
      hands,
      journal,
      identity,
      stateDirectory: directory,
      clock: systemClock,
      signal,
      log: (level, message, more) => log(level, message, { ...about, ...more }),
      onWelcome: () => {
        up.add(number);
        if (up.size === count) process.stdout.write(`ready ${JSON.stringify({ machines: count })}\n`);
      },
    });
    running.push(daemon.finally(() => journal.close()));
  };
  const lanes = Array.from({ length: JOINING_MAX }, async () => {
    for (let n = numbers.shift(); n !== undefined && !signal.aborted; n = numbers.shift()) await start(n);
  });
  await Promise.all(lanes);
  await Promise.all(running);
}

async function admit(machine: Machine, trust: () => Promise<string>, options: Options, signal: AbortSignal) {
  const token = tokenOf(options.token);
  for (let tries = 1; ; tries++) {
    try {
      return await join(
        {
          stateDirectory: machine.directory,
          address: options.gateway,
          trustPem: await trust(),
          inventory: await machine.hands.collectInventory(signal),
          clock: systemClock,
          signal,
        },
        { kind: 'token', token },
      );
    } catch (e) {
      if (!isProblem(e) || e.spec.retry !== 'after' || tries >= 60) throw e;
      await systemClock.sleep(1_000 + Math.random() * 2_000, signal);
    }
  }
}
