/** Brings the machine that the demo runs on into the fleet: the real `bcd join`, then the real `bcd node`. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { bcdChild } from '#cli/dev/children.ts';
import type { Running } from '#cli/dev/up.ts';
import type { Client } from '#sdk/client.ts';

export const BCD = 'bcd';

export interface Joined {
  readonly poolId: string;
  readonly cdiFolder: string;
}

/** Class of the pool: GPUs are booked one by one; a machine that has none is booked as a whole. */
export async function joinThisMachine(running: Running, operator: Client, gpus: number): Promise<Joined> {
  const { items: sites } = (await operator.call('sites.list')) as { items: { id: string }[] };
  const pool = (await operator.call('pools.create', {
    siteId: sites[0]!.id,
    name: 'this-machine',
    class: gpus > 0 ? 'metal-host' : 'metal-dedicated',
  })) as { id: string };
  await operator.call('offers.create', {
    poolId: pool.id,
    tenantId: running.tenantId,
    quota: gpus > 0 ? { gpu: gpus } : { node: 1 },
  });
  const token = (await operator.call('joinTokens.create', { poolId: pool.id })) as { token: string };
  const stateDir = join(running.stateDir, 'this-machine');
  const cdiFolder = join(stateDir, 'cdi');
  mkdirSync(cdiFolder, { recursive: true });
  const place = ['--state-dir', stateDir];
  const once = await bcdChild(
    'bcd-join',
    ['join', '--gateway', `127.0.0.1:${running.ports.join}`, '--ca-file', join(running.stateDir, 'ca.pem'), ...place],
    { BCD_JOIN_TOKEN: token.token },
  ).start(() => {});
  const { code } = await once.process.exited;
  if (code !== 0) throw new Error(`bcd join ended with ${code}`);
  await running.supervisor.add(bcdChild(BCD, ['node', ...place, '--cdi-dir', cdiFolder]));
  return { poolId: pool.id, cdiFolder };
}
