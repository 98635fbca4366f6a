/** `host:port`, with an IPv6 host in brackets. */
import { problem } from '#core/kernel/errors.ts';

export function splitAddress(address: string): { host: string; port: number } {
  const [, v6, name, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:/\s[\]]+)):(\d{1,5})$/.exec(address) ?? [];
  const host = v6 ?? name;
  if (host === undefined || port === undefined || Number(port) > 65_535) {
    throw problem('INVALID_REQUEST', `${address} is not an address`, {
      errors: [{ field: 'gateway', message: 'expected host:port' }],
    });
  }
  return { host, port: Number(port) };
}
