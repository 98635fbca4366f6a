/** All addresses of a name. In Workers, node:dns asks the platform's resolver over HTTPS. */
import { lookup } from 'node:dns/promises';

export async function resolveAll(host: string): Promise<string[]> {
  return (await lookup(host, { all: true })).map((a) => a.address);
}
