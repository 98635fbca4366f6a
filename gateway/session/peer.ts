/**
 * Who is at the other end. TLS has checked that the certificate chains to our authority and is in its time; here its
 * one SPIFFE URI and its role are read. Nothing the peer says later can change the answer.
 */
import { X509Certificate } from 'node:crypto';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { isNodeRole, type NodeRole } from '#core/join/certificate-policy.ts';
import { type NodeName, parseSpiffeId } from '#core/join/spiffe.ts';
import { problem } from '#core/kernel/errors.ts';

type AuthContext = ReturnType<ServerDuplexStream<unknown, unknown>['getAuthContext']>;

export interface Peer extends NodeName {
  readonly role: NodeRole;
  /** Lower-case hex. */
  readonly serial: string;
  readonly notAfterMs: number;
}

/** Throws UNAUTHENTICATED for a certificate that names no node of ours. */
export function peerOf(context: AuthContext): Peer {
  const raw = context.sslPeerCertificate?.raw;
  if (raw === undefined) throw problem('UNAUTHENTICATED', 'a client certificate is needed');
  const certificate = new X509Certificate(raw);
  // A value with a comma or a quote in it is printed quoted, so it cannot pass for two names.
  const uris = (certificate.subjectAltName ?? '').split(', ').filter((name) => name.startsWith('URI:'));
  const name = uris.length === 1 ? parseSpiffeId(uris[0]!.slice(4)) : undefined;
  if (name === undefined) throw problem('UNAUTHENTICATED', 'the certificate names no node');
  const role = certificate.subject
    .split('\n')
    .find((line) => line.startsWith('OU='))
    ?.slice(3);
  if (!isNodeRole(role)) throw problem('UNAUTHENTICATED', 'the certificate carries no role');
  return {
    ...name,
    role,
    serial: certificate.serialNumber.toLowerCase(),
    notAfterMs: Date.parse(certificate.validTo),
  };
}
