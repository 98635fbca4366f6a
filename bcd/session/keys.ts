/** The machine's key pairs, certificate requests and proofs. Private keys leave this file only as PEM for the disk. */
import { fromPem, hex, sha256, toBase64, toPem } from '#core/join/bytes.ts';
import { proofMessage } from '#core/join/evidence.ts';
import { P256, Pkcs10CertificateRequestGenerator, X509Certificate } from '#core/join/x509.ts';

export async function newPrivateKey(): Promise<string> {
  const keys = await crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
  return toPem('PRIVATE KEY', await crypto.subtle.exportKey('pkcs8', keys.privateKey));
}

async function keyPair(privateKeyPem: string): Promise<CryptoKeyPair> {
  const der = fromPem('PRIVATE KEY', privateKeyPem)[0]!;
  const privateKey = await crypto.subtle.importKey('pkcs8', der, P256, true, ['sign']);
  const { d: _, key_ops: _ops, ...open } = await crypto.subtle.exportKey('jwk', privateKey);
  return { privateKey, publicKey: await crypto.subtle.importKey('jwk', open, P256, true, ['verify']) };
}

/** DER. The name in it says nothing: the control plane gives names. */
export async function certificateRequest(privateKeyPem: string): Promise<Uint8Array<ArrayBuffer>> {
  const keys = await keyPair(privateKeyPem);
  const csr = await Pkcs10CertificateRequestGenerator.create({ name: 'CN=bcd', keys, signingAlgorithm: P256 });
  return new Uint8Array(csr.rawData);
}

/** Names a key without telling it: the same for every repetition of a join with it. */
export async function fingerprint(privateKeyPem: string): Promise<string> {
  const { publicKey } = await keyPair(privateKeyPem);
  return hex(await crypto.subtle.digest('SHA-256', await crypto.subtle.exportKey('spki', publicKey)));
}

/** Shows that we hold the key of an earlier certificate, for exactly this request. */
export async function signProof(
  privateKeyPem: string,
  challenge: string,
  csr: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { privateKey } = await keyPair(privateKeyPem);
  const message = proofMessage(challenge, await sha256(csr));
  return new Uint8Array(await crypto.subtle.sign(P256, privateKey, message));
}

/** True when the certificate is over this key. */
export async function belongsTogether(certificateDer: Uint8Array, privateKeyPem: string): Promise<boolean> {
  const { publicKey } = await keyPair(privateKeyPem);
  const ours = await crypto.subtle.exportKey('spki', publicKey);
  return toBase64(ours) === toBase64(new X509Certificate(new Uint8Array(certificateDer)).publicKey.rawData);
}
