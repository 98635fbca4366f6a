/**
 * The port of attestors: each checks one kind of join evidence inside JoinService's transaction and says whether the
 * machine may join, and as which node. What an attestor spends (a use of a token) it spends in that transaction, so
 * that a use is counted if and only if the admission committed.
 */
import type { HardwareKey } from '../inventory/hardware-key.ts';
import type { Sql } from '../kernel/database.ts';
import type { ClockReading, NodeRole } from './certificate-policy.ts';
import type { JoinRequest } from './evidence.ts';

export interface Evidence {
  readonly request: JoinRequest;
  /** SHA-256 of the public key (SubjectPublicKeyInfo) in the verified CSR, lower-case hex. */
  readonly keyHash: string;
  /** SHA-256 of the CSR's DER, lower-case hex. */
  readonly csrDigest: string;
  readonly hardware: HardwareKey;
  readonly clock: ClockReading;
  readonly sourceIp?: string;
  /** True for a challenge that this deployment gave out and that has not run out. */
  challengeStands(challenge: string): Promise<boolean>;
}

export interface Admitted {
  readonly kind: 'admitted';
  readonly tenantId: string;
  readonly siteId: string;
  readonly poolId: string;
  readonly role: NodeRole;
  /** The node that this evidence names. Undefined: JoinService looks for a machine that came back, else makes a node. */
  readonly nodeId?: string;
  /** The same admission was given before and is given again. */
  readonly repeated: boolean;
  /** The join token under which the admission is remembered. */
  readonly tokenId?: string;
  /** For the audit record. */
  readonly by: { readonly type: `compute-${string}`; readonly id: string };
}

export interface Refused {
  readonly kind: 'refused';
  /** May be read by the machine, so it says nothing that helps a guesser. */
  readonly detail: string;
  /** Where the refusal is recorded; absent when the evidence names nothing of anybody. */
  readonly record?: {
    readonly tenantId: string;
    readonly type: `compute-${string}`;
    readonly id: string;
    readonly data?: Readonly<Record<string, string | number | readonly string[]>>;
  };
}

export type Attestation = Admitted | Refused;

export interface Attestor {
  readonly name: string;
  /** Whether the request carries this attestor's kind of evidence. */
  concerns(request: JoinRequest): boolean;
  attest(tx: Sql, evidence: Evidence): Promise<Attestation>;
}
