/** Certificates that JoinService would not give: of another authority, another time, another name. */
import { certificateRequest, newPrivateKey } from '#bcd/session/keys.ts';
import { fromBase64, toBase64, toPem } from '#core/join/bytes.ts';
import type { NodeRole } from '#core/join/certificate-policy.ts';
import { X509Certificate } from '#core/join/x509.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
import { type Authority, signNodeCertificate, verifyRequest } from '#services/join/certificate.ts';

export async function certificateFor(
  authority: Authority,
  name: { nodeId: string; siteId: string; role: NodeRole },
  now = fromMillis(systemClock.now()),
): Promise<{ privateKeyPem: string; certificatePem: string; serial: string }> {
  const privateKeyPem = await newPrivateKey();
  const { publicKey } = await verifyRequest(toBase64(await certificateRequest(privateKeyPem)));
  const signed = await signNodeCertificate(authority, name, publicKey, { now, steady: now });
  const der = fromBase64(signed.chain[0]!);
  return {
    privateKeyPem,
    certificatePem: toPem('CERTIFICATE', der),
    serial: new X509Certificate(der).serialNumber.toLowerCase(),
  };
}
