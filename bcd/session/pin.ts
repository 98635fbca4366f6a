/**
 * The first contact: which authority to trust. The operator gave the machine a pin, the hash of the authority's public
 * key; the gateway shows its chain; the certificate in it that fits the pin becomes the only trust anchor, and only
 * then is anything sent. A chain without it ends the attempt: somebody else answers at that address.
 */
import { createHash, X509Certificate } from 'node:crypto';
import { connect, type DetailedPeerCertificate } from 'node:tls';
import { problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';
import { splitAddress } from './address.ts';
import { noAnswer } from './grpc-problem.ts';

const PIN = /^sha256\/[A-Za-z0-9+/]{43}=$/;
const DEADLINE_MS = 15_000;
const CHAIN_MAX = 8;

/** PEM of the pinned authority. */
export async function authorityOf(address: string, pin: string, clock: Clock): Promise<string> {
  if (!PIN.test(pin)) {
    throw problem('INVALID_REQUEST', 'the authority pin is not readable', {
      errors: [{ field: 'ca-pin', message: 'expected sha256/ and 44 characters of base64' }],
    });
  }
  const shown = await chainOf(address, clock);
  const found = shown.find((raw) => pinOf(raw) === pin);
  if (found === undefined) {
    throw problem('JOIN_REFUSED', `what answers at ${address} does not belong to the pinned authority ${pin}`);
  }
  return new X509Certificate(found).toString();
}

export function pinOf(certificate: Buffer): string {
  const spki = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' });
  return `sha256/${createHash('sha256').update(spki).digest('base64')}`;
}

/** The certificates that the other side shows, unverified: they are only compared with the pin. */
async function chainOf(address: string, clock: Clock): Promise<Buffer[]> {
  const { host, port } = splitAddress(address);
  const socket = connect({ host, port, rejectUnauthorized: false, ALPNProtocols: ['h2'] });
  const answered = new AbortController();
  try {
    return await Promise.race([
      new Promise<Buffer[]>((resolve, reject) => {
        socket.once('error', (e) =>
          reject(problem('UNAVAILABLE', `${address} cannot be reached: ${e.message}`, { retryAfterSeconds: 2 })),
        );
        socket.once('secureConnect', () => {
          const chain: Buffer[] = [];
          let at: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
          while (at?.raw !== undefined && chain.length < CHAIN_MAX && !chain.some((c) => c.equals(at!.raw))) {
            chain.push(at.raw);
            at = at.issuerCertificate;
          }
          resolve(chain);
        });
      }),
      clock.sleep(DEADLINE_MS, answered.signal).then((): Buffer[] => {
        throw noAnswer(`the first contact with ${address}`);
      }),
    ]);
  } finally {
    answered.abort();
    socket.destroy();
  }
}
