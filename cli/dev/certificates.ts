/**
 * The certificate authority of a control plane on one machine, and its gateway's server certificate. Both are kept in
 * the state directory, readable by their owner alone, so that machines that joined stay joined over a restart. The
 * gateway's certificate is made anew when it nears its end; the authority is not, since machines pinned it.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { fromPem, hex, toBase64, toPem } from '#core/join/bytes.ts';
import { DEFAULT_TRUST_DOMAIN } from '#core/join/spiffe.ts';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  P256,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '#core/join/x509.ts';
import { type Clock, systemClock } from '#core/kernel/time.ts';

export interface KeyPair {
  readonly certificatePem: string;
  /** PKCS#8. */
  readonly privateKeyPem: string;
}

export interface DevCertificates {
  readonly trustDomain: string;
  readonly ca: KeyPair;
  /** Chain of the gateway: its own certificate, then the authority's, so that a machine can find what it pinned. */
  readonly gateway: KeyPair;
  /** `sha256/<base64>` of the authority's public key, for `bcd join --ca-pin`. */
  readonly caPin: string;
}

const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = 3650;
const GATEWAY_DAYS = 90;
const GATEWAY_RENEW_DAYS = 30;
const BACKDATE_MS = 300_000;

export interface CertificateOptions {
  readonly trustDomain?: string;
  /** Host names and addresses of the gateway. */
  readonly hosts?: readonly string[];
  readonly clock?: Clock;
}

/** Reads what is there and makes what is missing. */
export async function devCertificates(directory: string, options: CertificateOptions = {}): Promise<DevCertificates> {
  const clock = options.clock ?? systemClock;
  const trustDomain = options.trustDomain ?? DEFAULT_TRUST_DOMAIN;
  const hosts = options.hosts ?? ['localhost', '127.0.0.1', '::1'];
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const ca = (await load(directory, 'ca')) ?? (await keep(directory, 'ca', await makeAuthority(trustDomain, clock)));
  const known = await load(directory, 'gateway');
  const gateway =
    known !== undefined && serves(known, ca, hosts, clock)
      ? known
      : await keep(directory, 'gateway', await makeGatewayCertificate(ca, hosts, clock));
  return { trustDomain, ca, gateway, caPin: await pinOf(ca.certificatePem) };
}

/** `sha256/<base64>` over the public key, so that a renewed certificate of the same authority keeps its pin. */
export async function pinOf(certificatePem: string): Promise<string> {
  const certificate = new X509Certificate(fromPem('CERTIFICATE', certificatePem)[0]!);
  return `sha256/${toBase64(await crypto.subtle.digest('SHA-256', certificate.publicKey.rawData))}`;
}

export async function makeAuthority(trustDomain: string, clock: Clock = systemClock): Promise<KeyPair> {
  const keys = await crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
  const name = `O=Better Compute, CN=${trustDomain} machines`;
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: serial(),
    name,
    ...validity(clock, AUTHORITY_DAYS),
    keys,
    signingAlgorithm: P256,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return pair([certificate.rawData], keys.privateKey);
}

export async function makeGatewayCertificate(
  ca: KeyPair,
  hosts: readonly string[],
  clock: Clock = systemClock,
): Promise<KeyPair> {
  const authority = new X509Certificate(fromPem('CERTIFICATE', ca.certificatePem)[0]!);
  const signingKey = await crypto.subtle.importKey('pkcs8', fromPem('PRIVATE KEY', ca.privateKeyPem)[0]!, P256, false, [
    'sign',
  ]);
  const keys = await crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
  const certificate = await X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: 'O=Better Compute, CN=gateway',
    issuer: authority.subjectName,
    ...validity(clock, GATEWAY_DAYS),
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: P256,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(
        hosts.map((value) => ({ type: isIP(value) === 0 ? ('dns' as const) : ('ip' as const), value })),
      ),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
      await AuthorityKeyIdentifierExtension.create(authority),
    ],
  });
  return pair([certificate.rawData, authority.rawData], keys.privateKey);
}

function serves(gateway: KeyPair, ca: KeyPair, hosts: readonly string[], clock: Clock): boolean {
  const [own, issuer] = fromPem('CERTIFICATE', gateway.certificatePem);
  if (own === undefined || issuer === undefined) return false;
  const certificate = new X509Certificate(own);
  const names = certificate.getExtension(SubjectAlternativeNameExtension)?.names.items.map((n) => n.value) ?? [];
  return (
    toBase64(issuer) === toBase64(fromPem('CERTIFICATE', ca.certificatePem)[0]!) &&
    certificate.notAfter.getTime() - clock.now() > GATEWAY_RENEW_DAYS * DAY_MS &&
    hosts.every((h) => names.includes(h))
  );
}

function serial(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[0] = (bytes[0]! & 0x3f) | 0x40;
  return hex(bytes);
}

function validity(clock: Clock, days: number) {
  const start = Math.floor((clock.now() - BACKDATE_MS) / 1000) * 1000;
  return { notBefore: new Date(start), notAfter: new Date(start + days * DAY_MS) };
}

async function pair(chain: readonly ArrayBuffer[], key: CryptoKey): Promise<KeyPair> {
  return {
    certificatePem: chain.map((der) => toPem('CERTIFICATE', der)).join(''),
    privateKeyPem: toPem('PRIVATE KEY', await crypto.subtle.exportKey('pkcs8', key)),
  };
}

async function load(directory: string, name: string): Promise<KeyPair | undefined> {
  try {
    const text = await readFile(join(directory, `${name}.pem`), 'utf8');
    const certificatePem = fromPem('CERTIFICATE', text)
      .map((der) => toPem('CERTIFICATE', der))
      .join('');
    const [key] = fromPem('PRIVATE KEY', text);
    return key === undefined || certificatePem === ''
      ? undefined
      : { certificatePem, privateKeyPem: toPem('PRIVATE KEY', key) };
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw e;
  }
}

/** Key and certificate in one file, so that they change together. */
async function keep(directory: string, name: string, made: KeyPair): Promise<KeyPair> {
  const path = join(directory, `${name}.pem`);
  await writeFile(`${path}.new`, made.privateKeyPem + made.certificatePem, { mode: 0o600 });
  await rename(`${path}.new`, path);
  return made;
}
