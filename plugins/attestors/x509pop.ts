/**
 * Rejoin by proof of possession: a machine whose certificate ran out while it was off signs a fresh challenge, together
 * with its new CSR, with the key of that certificate. The certificate itself proves nothing (it may have expired, its
 * authority may have been replaced); it only names a serial number whose key stands in our own books. A hardware key
 * that changed meanwhile means that the disk moved: then the machine is another one and needs a join token.
 */
import type { Attestation, Attestor, Evidence } from '#core/join/attestor.ts';
import { fromBase64, sha256 } from '#core/join/bytes.ts';
import { isNodeRole, REJOIN_WINDOW_SECONDS } from '#core/join/certificate-policy.ts';
import { type JoinRequest, type KeyProof, proofMessage } from '#core/join/evidence.ts';
import { P256, X509Certificate } from '#core/join/x509.ts';
import type { Sql } from '#core/kernel/database.ts';

interface CertificateRow extends Record<string, unknown> {
  readonly node_id: string;
  readonly key_hash: string;
  readonly role: string;
  readonly revoked: boolean;
  readonly too_old: boolean;
  readonly tenant_id: string;
  readonly site_id: string;
  readonly pool_id: string;
  readonly state: string;
  readonly hardware_key: string | null;
  readonly hardware_key_trusted: boolean;
}

const NOT_PROVEN: Attestation = { kind: 'refused', detail: 'the key of the earlier certificate is not proven' };

/** Serial and key hash of the certificate when the signature fits; undefined for anything else. */
async function proven(proof: KeyProof, csrDigest: string): Promise<{ serial: string; keyHash: string } | undefined> {
  try {
    const certificate = new X509Certificate(fromBase64(proof.certificate));
    const key = await crypto.subtle.importKey('spki', certificate.publicKey.rawData, P256, true, ['verify']);
    const message = proofMessage(proof.challenge, csrDigest);
    if (!(await crypto.subtle.verify(P256, key, fromBase64(proof.signature), message))) return undefined;
    return {
      serial: certificate.serialNumber.toLowerCase(),
      keyHash: await sha256(new Uint8Array(certificate.publicKey.rawData)),
    };
  } catch {
    return undefined;
  }
}

export const x509popAttestor: Attestor = {
  name: 'x509pop',
  concerns: (request: JoinRequest) => request.proof !== undefined,

  async attest(tx: Sql, evidence: Evidence): Promise<Attestation> {
    const proof = evidence.request.proof!;
    if (!(await evidence.challengeStands(proof.challenge))) {
      return { kind: 'refused', detail: 'the challenge is not one of ours, or has run out' };
    }
    const shown = await proven(proof, evidence.csrDigest);
    if (shown === undefined) return NOT_PROVEN;
    const [known] = await tx.query<CertificateRow>(
      `select c.node_id, c.key_hash, c.role, c.revoked_at is not null as revoked,
         c.not_after + make_interval(secs => $2) <= steady_now() as too_old,
         n.tenant_id, n.site_id, n.pool_id, n.state, n.hardware_key, n.hardware_key_trusted
       from node_certificates c join nodes n on n.id = c.node_id where c.serial = $1`,
      [shown.serial, REJOIN_WINDOW_SECONDS],
    );
    if (known === undefined || known.key_hash !== shown.keyHash || !isNodeRole(known.role)) return NOT_PROVEN;
    const refuse = (detail: string): Attestation => ({
      kind: 'refused',
      detail,
      record: {
        tenantId: known.tenant_id,
        type: 'compute-node',
        id: known.node_id,
        data: { why: detail, serial: shown.serial, requestKey: evidence.request.requestKey },
      },
    });
    if (known.state === 'retired') return refuse('the node was retired');
    if (known.revoked) return refuse('the earlier certificate was revoked');
    if (known.too_old) return refuse('the earlier certificate expired too long ago; use a join token');
    const trusted = known.hardware_key_trusted && known.hardware_key !== null;
    if (trusted && known.hardware_key !== evidence.hardware.key) {
      return refuse('this is not the hardware that the certificate was given to; use a join token');
    }
    return {
      kind: 'admitted',
      tenantId: known.tenant_id,
      siteId: known.site_id,
      poolId: known.pool_id,
      role: known.role,
      nodeId: known.node_id,
      repeated: false,
      by: { type: 'compute-node', id: known.node_id },
    };
  },
};
