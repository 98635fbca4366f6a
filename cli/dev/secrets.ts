/**
 * What a local control plane needs to prove itself, made once and kept in the state folder with mode 0600: the
 * authority that signs machines' certificates, the gateway's own certificate from it, the gateway's token.
 */
import 'reflect-metadata';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as x509 from '@peculiar/x509';
import { systemClock } from '#core/kernel/time.ts';

export const TRUST_DOMAIN = 'compute.local';

export interface LocalSecrets {
  readonly caCertPem: string;
  readonly caKeyPem: string;
  readonly gatewayCertPem: string;
  readonly gatewayKeyPem: string;
  readonly gatewayToken: string;
}

const DAY_MS = 86_400_000;
const CA_DAYS = 3650;
const GATEWAY_DAYS = 30;
const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' };
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' };

/** The gateway's certificate is made anew at each start: a start is rarer than its end by far. */
export async function localSecrets(stateDir: string): Promise<LocalSecrets> {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  if (!existsSync(join(stateDir, 'ca.pem'))) {
    const { certPem, keyPem } = await createAuthority();
    keep(stateDir, 'ca-key.pem', keyPem);
    keep(stateDir, 'ca.pem', certPem);
  }
  if (!existsSync(join(stateDir, 'gateway-token'))) keep(stateDir, 'gateway-token', randomToken());
  const caCertPem = readSecret(stateDir, 'ca.pem');
  const caKeyPem = readSecret(stateDir, 'ca-key.pem');
  const gateway = await createGatewayCertificate(caCertPem, caKeyPem);
  return {
    caCertPem,
    caKeyPem,
    gatewayCertPem: gateway.certPem,
    gatewayKeyPem: gateway.keyPem,
    gatewayToken: readSecret(stateDir, 'gateway-token').trim(),
  };
}

export function keep(stateDir: string, name: string, text: string): void {
  writeFileSync(join(stateDir, name), text.endsWith('\n') ? text : `${text}\n`, { mode: 0o600 });
}

/** Refuses a secret that others may read, with the way to put it right. */
export function readSecret(stateDir: string, name: string): string {
  const path = join(stateDir, name);
  if ((statSync(path).mode & 0o077) !== 0) throw new Error(`${path} can be read by others: run "chmod 600 ${path}"`);
  return readFileSync(path, 'utf8');
}

export function randomToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url');
}

interface Pair {
  readonly certPem: string;
  readonly keyPem: string;
}

async function createAuthority(): Promise<Pair> {
  const keys = await crypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
  const cert = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serial(),
    name: 'CN=Better Compute local authority',
    ...validity(CA_DAYS),
    keys,
    signingAlgorithm: SIGNING,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certPem: cert.toString('pem'), keyPem: await keyPem(keys.privateKey) };
}

async function createGatewayCertificate(caCertPem: string, caKeyPem: string): Promise<Pair> {
  const authority = new x509.X509Certificate(caCertPem);
  const signingKey = await importKey(caKeyPem);
  const keys = await crypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
  const cert = await x509.X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: 'CN=gateway',
    issuer: authority.subject,
    ...validity(GATEWAY_DAYS),
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: SIGNING,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension([
        { type: 'dns', value: 'localhost' },
        { type: 'ip', value: '127.0.0.1' },
        { type: 'url', value: `spiffe://${TRUST_DOMAIN}/gateway/local` },
      ]),
      await x509.AuthorityKeyIdentifierExtension.create(authority),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certPem: cert.toString('pem'), keyPem: await keyPem(keys.privateKey) };
}

/** An hour back, for clocks that are a little behind. */
function validity(days: number): { notBefore: Date; notAfter: Date } {
  const now = systemClock.now();
  return { notBefore: new Date(now - 3_600_000), notAfter: new Date(now + days * DAY_MS) };
}

function serial(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[0] = (bytes[0]! & 0x7f) | 0x01; // positive, and never with a leading zero byte
  return Buffer.from(bytes).toString('hex');
}

async function keyPem(key: CryptoKey): Promise<string> {
  return x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY');
}

async function importKey(pem: string): Promise<CryptoKey> {
  const der = x509.PemConverter.decodeFirst(pem);
  return crypto.subtle.importKey('pkcs8', der, KEY_ALGORITHM, false, ['sign']);
}
