/** `bcd join`: admits this machine with a join token and keeps the identity that it gets. */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { problem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import { LinuxHands } from '../hands/linux/hands.ts';
import { loadIdentity } from '../journal/identity.ts';
import { join } from '../session/join.ts';
import { authorityOf } from '../session/pin.ts';
import { DEFAULT_STATE_DIRECTORY } from './status.ts';

export interface TrustOptions {
  readonly gateway: string;
  readonly caPin?: string;
  readonly caFile?: string;
}

/** The authority to trust: pinned and found at the gateway, or given as a file. */
export async function trustOf({ gateway, caPin, caFile }: TrustOptions): Promise<string> {
  if (caFile !== undefined) return readFile(caFile, 'utf8');
  if (caPin !== undefined) return authorityOf(gateway, caPin, systemClock);
  const message = 'one of --ca-pin and --ca-file is needed: without it anybody could answer';
  throw problem('INVALID_REQUEST', 'there is nothing to know the gateway by', {
    errors: [{ field: 'ca-pin', message }],
  });
}

/** The token of the option or of BCD_JOIN_TOKEN, which process lists do not show. */
export function tokenOf(option: string | undefined): string {
  const token = option ?? process.env['BCD_JOIN_TOKEN'] ?? '';
  if (token !== '') return token.trim();
  const message = 'give --token, or BCD_JOIN_TOKEN in the environment';
  throw problem('INVALID_REQUEST', 'a join token is needed', { errors: [{ field: 'token', message }] });
}

interface Options extends TrustOptions {
  readonly token?: string;
  readonly stateDir: string;
  readonly again?: boolean;
}

export function joinCommand(): Command {
  return new Command('join')
    .description('join this machine to a pool with a join token')
    .requiredOption('--gateway <host:port>', 'join port of a gateway')
    .option('--token <token>', 'the join token (or BCD_JOIN_TOKEN in the environment)')
    .option('--ca-pin <pin>', 'sha256/<base64>: hash of the public key of the authority to trust')
    .option('--ca-file <file>', 'PEM of the authority to trust')
    .option('--state-dir <dir>', 'where identity and journal are kept', DEFAULT_STATE_DIRECTORY)
    .option('--again', 'join although this machine has an identity')
    .action(async (options: Options) => {
      const known = await loadIdentity(options.stateDir);
      if (known !== undefined && options.again !== true) {
        throw problem('CONFLICT', `this machine has joined as ${known.nodeId}; use --again to join anew`);
      }
      const identity = await join(
        {
          stateDirectory: options.stateDir,
          address: options.gateway,
          trustPem: await trustOf(options),
          inventory: await new LinuxHands().collectInventory(),
          clock: systemClock,
          onRetry: (why, ms) => process.stderr.write(`bcd: ${why}; again in ${(ms / 1000).toFixed(1)} s\n`),
        },
        { kind: 'token', token: tokenOf(options.token) },
      );
      const { nodeId, spiffeId, notAfter, outcome } = identity;
      process.stdout.write(`${outcome} ${nodeId}\n  ${spiffeId}\n  certificate until ${notAfter}\n`);
    });
}
