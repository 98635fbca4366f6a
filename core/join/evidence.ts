/**
 * What a machine sends to be admitted, in the words that gateway and JoinService use between them (JSON). Everything in
 * here is a claim of somebody unknown; attestors decide what of it is believed.
 */
import { z } from 'zod';
import { problem } from '../kernel/errors.ts';

const text = z.string().min(1).max(256);

/** The identifiers from which the hardware key follows. */
export const HardwareEvidence = z.object({
  productUuid: text.optional(),
  serial: text.optional(),
  macs: z.array(text).max(256).default([]),
  gpuUuids: z.array(text).max(256).default([]),
});
export type HardwareEvidence = z.infer<typeof HardwareEvidence>;

/** For the node's first name and for people who look at a fresh admission. */
export const InventorySummary = z.object({
  hostname: z.string().max(253).optional(),
  vendor: text.optional(),
  product: text.optional(),
  gpus: z.number().int().nonnegative().max(1024).optional(),
});
export type InventorySummary = z.infer<typeof InventorySummary>;

const base64 = z.string().regex(/^[A-Za-z0-9+/]+={0,2}$/, 'expected base64');

/** Possession of the key of an earlier node certificate, shown by a signature over a fresh challenge and the new CSR. */
export const KeyProof = z.object({
  /** DER of the earlier certificate. It may have expired: it only names the key. */
  certificate: base64.max(20_000),
  challenge: z.string().min(1).max(512),
  /** ECDSA P-256 with SHA-256 over `proofMessage()`, in IEEE P1363 form. */
  signature: base64.max(200),
});
export type KeyProof = z.infer<typeof KeyProof>;

export const JoinRequest = z.object({
  /** DER of a PKCS#10 request. Its names are ignored; its signature shows that the asker has the key. */
  csr: base64.max(20_000),
  /** Chosen by the machine for this try and every repetition of it; stands in the audit record. */
  requestKey: z.string().min(1).max(255),
  token: z.string().min(1).max(512).optional(),
  proof: KeyProof.optional(),
  hardware: HardwareEvidence,
  summary: InventorySummary.default({}),
});
export type JoinRequest = z.infer<typeof JoinRequest>;

export const RenewRequest = z.object({
  nodeId: text,
  /** Serial number of the certificate that the session was opened with, lower-case hex. */
  serial: z.string().regex(/^[0-9a-f]{2,40}$/),
  epoch: z.number().int().positive(),
  csr: base64.max(20_000),
});
export type RenewRequest = z.infer<typeof RenewRequest>;

export const Certificate = z.object({
  /** DER, leaf first, without the root. */
  chain: z.array(base64).min(1),
  /** DER of every authority that gateways may chain to. */
  bundle: z.array(base64).min(1),
  notBefore: z.string(),
  notAfter: z.string(),
});
export type Certificate = z.infer<typeof Certificate>;

export const Admission = Certificate.extend({
  nodeId: text,
  siteId: text,
  spiffeId: z.string(),
  role: text,
  /** How the node came about: a new row, the one of a machine that came back, or a repeated answer. */
  outcome: z.enum(['joined', 'returned', 'repeated']),
});
export type Admission = z.infer<typeof Admission>;

/** Throws INVALID_REQUEST that names each field. */
export function parseEvidence<S extends z.ZodType>(schema: S, data: unknown): z.output<S> {
  const result = schema.safeParse(data);
  if (result.success) return result.data;
  throw problem('INVALID_REQUEST', 'the join request is not valid', {
    errors: result.error.issues
      .slice(0, 20)
      .map((issue) => ({ field: issue.path.map(String).join('.') || 'body', message: issue.message })),
  });
}

/** What a key proof signs. Bound to the CSR, so that a proof admits no other key than the one it was made for. */
export function proofMessage(challenge: string, csrDigestHex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new TextEncoder().encode(`bettercompute x509pop v1\n${challenge}\n${csrDigestHex}\n`));
}
