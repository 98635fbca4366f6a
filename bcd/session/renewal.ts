/**
 * Keeps the certificate young: asks at two thirds of its life, with a fresh key each time. Key and certificate change
 * together on the disk; a crash in between leaves the old pair, which is still good.
 */
import { X509Certificate } from 'node:crypto';
import { toPem } from '#core/join/bytes.ts';
import { renewAt } from '#core/join/certificate-policy.ts';
import { type Clock, fromMillis, toMillis } from '#core/kernel/time.ts';
import type { CertificateIssued } from '#proto/gen/bettercompute/v1/session_pb.js';
import { type Identity, saveIdentity } from '../journal/identity.ts';
import { belongsTogether, certificateRequest, newPrivateKey } from './keys.ts';
import type { FrameInit } from './link.ts';

export interface RenewalOptions {
  readonly stateDirectory: string | undefined;
  readonly clock: Clock;
  readonly identity: () => Identity;
  readonly onRenewed: (identity: Identity) => void;
}

const RETRY_MS = 60_000;

export class Renewal {
  private pendingKey: string | undefined;
  private heldMs = RETRY_MS;
  private readonly options: RenewalOptions;

  constructor(options: RenewalOptions) {
    this.options = options;
  }

  /** Asks whenever it is time, until the session is over. */
  async run(send: (frame: FrameInit) => void, signal: AbortSignal): Promise<void> {
    const { clock, identity } = this.options;
    while (!signal.aborted) {
      const wait = dueAt(identity()) - clock.now();
      // Timers have 31 bits; a certificate never lives that long, a wrong one might claim to.
      if (wait > 0) {
        await clock
          .sleep(Math.min(wait + Math.random() * Math.min(60_000, wait / 10), 2 ** 30), signal)
          .catch(() => {});
        continue;
      }
      this.pendingKey ??= await newPrivateKey();
      const csr = await certificateRequest(this.pendingKey);
      if (signal.aborted) return;
      send({ case: 'renew', value: { csr } });
      const held = this.heldMs;
      this.heldMs = RETRY_MS;
      await clock.sleep(held * (0.5 + Math.random()), signal).catch(() => {});
    }
  }

  hold(ms: number): void {
    this.heldMs = Math.max(RETRY_MS, ms);
  }

  async issued(certificate: CertificateIssued): Promise<void> {
    const key = this.pendingKey;
    const [leaf] = certificate.chain;
    // One that answers an older request would not fit the key.
    if (key === undefined || leaf === undefined || !(await belongsTogether(leaf, key))) return;
    const renewed: Identity = {
      ...this.options.identity(),
      privateKeyPem: key,
      certificatePem: certificate.chain.map((der) => toPem('CERTIFICATE', der)).join(''),
      trustPem: certificate.bundle.map((der) => toPem('CERTIFICATE', der)).join(''),
      notAfter: certificate.notAfter,
    };
    const { stateDirectory } = this.options;
    if (stateDirectory !== undefined) await saveIdentity(stateDirectory, renewed);
    this.pendingKey = undefined;
    this.options.onRenewed(renewed);
  }
}

function dueAt(identity: Identity): number {
  const { validFrom } = new X509Certificate(identity.certificatePem);
  return toMillis(renewAt({ notBefore: fromMillis(Date.parse(validFrom)), notAfter: identity.notAfter }));
}
