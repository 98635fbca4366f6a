/** A client with a connection of its own to one gateway, under TLS, with or without our certificate. */
import { isIP } from 'node:net';
import { checkServerIdentity } from 'node:tls';
import { type ChannelOptions, Client, credentials } from '@grpc/grpc-js';
import { FRAME_LIMITS } from '#proto/grpc.ts';
import { splitAddress } from './address.ts';

export interface ChannelTrust {
  readonly trustPem: string;
  readonly privateKeyPem?: string;
  readonly certificatePem?: string;
}

/** Sent in place of an IP address, which TLS does not allow as a server name. Nobody routes by it. */
const NAMELESS = 'gateway.bettercompute.internal';

export function openChannel(address: string, trust: ChannelTrust, options: ChannelOptions = {}): Client {
  const { host } = splitAddress(address);
  const byAddress = isIP(host) !== 0;
  const pem = (text: string | undefined) => (text === undefined ? null : Buffer.from(text));
  const tls = credentials.createSsl(
    pem(trust.trustPem),
    pem(trust.privateKeyPem),
    pem(trust.certificatePem),
    byAddress ? { checkServerIdentity: (_, certificate) => checkServerIdentity(host, certificate) } : {},
  );
  return new Client(address, tls, {
    ...FRAME_LIMITS,
    // Without this every client of the process with the same options would share one connection.
    'grpc.use_local_subchannel_pool': 1,
    ...(byAddress ? { 'grpc.ssl_target_name_override': NAMELESS } : {}),
    ...options,
  });
}
