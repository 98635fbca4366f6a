/**
 * The certificate authority of machines: verifies requests and signs node certificates, with WebCrypto alone, so that
 * the key can be a secret of a Worker. Nothing of a request is believed but its public key: subject, names and
 * extensions of the certificate come from the admission.
 */
import { fromBase64, fromPem, hex, sha256, toBase64 } from '#core/join/bytes.ts';
import { type ClockReading, type NodeRole, validityOf } from '#core/join/certificate-policy.ts';
import type { Certificate } from '#core/join/evidence.ts';
import { spiffeId } from '#core/join/spiffe.ts';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  P256,
  Pkcs10CertificateRequest,
  type PublicKey,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '#core/join/x509.ts';
import { Problem, problem } from '#core/kernel/errors.ts';
import { fromMillis, type Instant, toMillis } from '#core/kernel/time.ts';

export interface Authority {
  readonly trustDomain: string;
  readonly certificate: X509Certificate;
  readonly key: CryptoKey;
  /** Signs challenges; follows from the authority's key, so that every isolate holds the same. */
  readonly challengeKey: CryptoKey;
  /** DER in base64 of this authority and of former ones that are still trusted. */
  readonly bundle: readonly string[];
}

/** `certificatePem`: the signing authority first, then former ones. `privateKeyPem`: PKCS#8, P-256. */
export async function openAuthority(from: {
  readonly trustDomain: string;
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}): Promise<Authority> {
  const certificates = fromPem('CERTIFICATE', from.certificatePem);
  const [keyDer] = fromPem('PRIVATE KEY', from.privateKeyPem);
  const [first] = certificates;
  if (first === undefined || keyDer === undefined) {
    throw problem('INVALID_REQUEST', 'the certificate authority is not configured', {
      errors: [{ field: first === undefined ? 'CA_CERT_PEM' : 'CA_KEY_PEM', message: 'expected PEM' }],
    });
  }
  const prefix = new TextEncoder().encode('bettercompute join challenge');
  const seed = new Uint8Array([...prefix, ...keyDer]);
  const hmac = { name: 'HMAC', hash: 'SHA-256' } as const;
  return {
    trustDomain: from.trustDomain,
    certificate: new X509Certificate(first),
    key: await crypto.subtle.importKey('pkcs8', keyDer, P256, false, ['sign']),
    challengeKey: await crypto.subtle.importKey('raw', await crypto.subtle.digest('SHA-256', seed), hmac, false, [
      'sign',
      'verify',
    ]),
    bundle: certificates.map(toBase64),
  };
}

export interface VerifiedRequest {
  readonly publicKey: PublicKey;
  /** SHA-256 of the SubjectPublicKeyInfo. */
  readonly keyHash: string;
  /** SHA-256 of the request's DER. */
  readonly digest: string;
}

const badRequest = (message: string, cause?: unknown) =>
  new Problem(
    'INVALID_REQUEST',
    `the certificate request is not usable: ${message}`,
    {
      errors: [{ field: 'csr', message }],
    },
    cause,
  );

/** Throws INVALID_REQUEST for what is no request, another kind of key, or a signature that does not fit the key. */
export async function verifyRequest(csrBase64: string): Promise<VerifiedRequest> {
  let der: Uint8Array<ArrayBuffer>;
  let request: Pkcs10CertificateRequest;
  try {
    der = fromBase64(csrBase64);
    request = new Pkcs10CertificateRequest(der);
  } catch (e) {
    throw badRequest('expected a PKCS#10 request in DER', e);
  }
  const algorithm = request.publicKey.algorithm as { name: string; namedCurve?: string };
  if (algorithm.name !== 'ECDSA' || algorithm.namedCurve !== 'P-256') throw badRequest('expected an ECDSA P-256 key');
  const genuine = await request.verify().catch((e: unknown) => {
    throw badRequest('its signature cannot be checked', e);
  });
  if (!genuine) throw badRequest('its signature does not fit its key');
  return {
    publicKey: request.publicKey,
    keyHash: await sha256(new Uint8Array(request.publicKey.rawData)),
    digest: await sha256(der),
  };
}

export interface SignedCertificate extends Certificate {
  /** Lower-case hex. */
  readonly serial: string;
  readonly spiffeId: string;
}

export async function signNodeCertificate(
  authority: Authority,
  name: { readonly nodeId: string; readonly siteId: string; readonly role: NodeRole },
  publicKey: PublicKey,
  clock: ClockReading,
): Promise<SignedCertificate> {
  const uri = spiffeId({ trustDomain: authority.trustDomain, ...name });
  const validity = validityOf(name.role, clock, fromMillis(authority.certificate.notAfter.getTime()));
  // 16 random bytes; positive and without a leading zero, as DER wants an integer.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[0] = (bytes[0]! & 0x3f) | 0x40;
  const serial = hex(bytes);
  const certificate = await X509CertificateGenerator.create({
    serialNumber: serial,
    subject: `OU=${name.role}, CN=${name.nodeId}`,
    issuer: authority.certificate.subjectName,
    notBefore: asDate(validity.notBefore),
    notAfter: asDate(validity.notAfter),
    publicKey,
    signingKey: authority.key,
    signingAlgorithm: P256,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.clientAuth]),
      new SubjectAlternativeNameExtension([{ type: 'url', value: uri }]),
      await SubjectKeyIdentifierExtension.create(publicKey),
      await AuthorityKeyIdentifierExtension.create(authority.certificate),
    ],
  });
  return {
    serial,
    spiffeId: uri,
    chain: [toBase64(certificate.rawData)],
    bundle: [...authority.bundle],
    ...validity,
  };
}

/** The library wants a Date; the instant was decided by the database. */
function asDate(instant: Instant): Date {
  return new Date(toMillis(instant));
}
