/**
 * How this machine gets its identity: with a join token the first time, with a proof of its old key when its certificate
 * ran out while it was off. The key is on disk before the first try, so that a repetition, also after a crash, asks with
 * the same key and spends nothing twice.
 */
import { create } from '@bufbuild/protobuf';
import { type Client, Metadata } from '@grpc/grpc-js';
import { hardwareIdentifiers, type NodeInventory } from '#core/inventory/index.ts';
import { fromPem, toPem } from '#core/join/bytes.ts';
import { isNodeRole } from '#core/join/certificate-policy.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';
import {
  type ChallengeReply,
  ChallengeRequestSchema,
  HardwareEvidenceSchema,
  InventorySummarySchema,
  Join,
  type JoinReply,
  type JoinRequest,
  JoinRequestSchema,
  KeyProofSchema,
} from '#proto/gen/bettercompute/v1/join_pb.js';
import { serviceDefinition } from '#proto/grpc.ts';
import { clearJoinKey, type Identity, loadJoinKey, saveIdentity, saveJoinKey } from '../journal/identity.ts';
import { splitAddress } from './address.ts';
import { BackOff, worthRetrying } from './back-off.ts';
import { openChannel } from './channel.ts';
import { refusalOf } from './grpc-problem.ts';
import { belongsTogether, certificateRequest, fingerprint, newPrivateKey, signProof } from './keys.ts';

export interface JoinOptions {
  readonly stateDirectory: string;
  /** `host:port` of a gateway's join port. */
  readonly address: string;
  /** PEM of the authorities that the gateway must chain to. */
  readonly trustPem: string;
  readonly inventory: NodeInventory;
  readonly clock: Clock;
  readonly signal?: AbortSignal;
  /** How long to go on while the gateway is away. */
  readonly patienceMs?: number;
  readonly onRetry?: (why: string, waitMs: number) => void;
}

export type JoinEvidence =
  | { readonly kind: 'token'; readonly token: string }
  | { readonly kind: 'proof'; readonly earlier: Identity };

const DEADLINE_MS = 30_000;
const PATIENCE_MS = 120_000;

/** Joins and saves the identity. Throws JOIN_REFUSED, CONFLICT, INVALID_REQUEST; UNAVAILABLE when patience ran out. */
export async function join(options: JoinOptions, evidence: JoinEvidence): Promise<Identity & { outcome: string }> {
  const { stateDirectory, address, clock, signal } = options;
  splitAddress(address);
  const key = (await loadJoinKey(stateDirectory)) ?? (await makeJoinKey(stateDirectory));
  const csr = await certificateRequest(key);
  const client = new JoinClient(address, options.trustPem, clock);
  const backOff = new BackOff(15_000);
  const started = clock.now();
  try {
    for (;;) {
      try {
        const proof =
          evidence.kind === 'token'
            ? undefined
            : await proofOf(evidence.earlier, (await client.challenge()).challenge, csr);
        const ids = hardwareIdentifiers(options.inventory.sections);
        const reply = await client.join(
          create(JoinRequestSchema, {
            csr,
            requestKey: await fingerprint(key),
            evidence:
              evidence.kind === 'token'
                ? { case: 'token', value: evidence.token }
                : { case: 'proof', value: create(KeyProofSchema, proof) },
            hardware: create(HardwareEvidenceSchema, { ...ids, macs: [...ids.macs], gpuUuids: [...ids.gpuUuids] }),
            summary: create(InventorySummarySchema, summaryOf(options.inventory)),
          }),
        );
        const identity = await identityOf(reply, key, address);
        await saveIdentity(stateDirectory, identity);
        await clearJoinKey(stateDirectory);
        return { ...identity, outcome: reply.outcome };
      } catch (e) {
        const { problem: p, pushbackMs } = refusalOf(e);
        const wait = backOff.next(pushbackMs);
        const patience = options.patienceMs ?? PATIENCE_MS;
        if (!worthRetrying(p) || clock.now() + wait - started > patience) throw p;
        options.onRetry?.(p.message, wait);
        await clock.sleep(wait, signal);
      }
    }
  } finally {
    client.close();
  }
}

async function makeJoinKey(stateDirectory: string): Promise<string> {
  const key = await newPrivateKey();
  await saveJoinKey(stateDirectory, key);
  return key;
}

async function proofOf(earlier: Identity, challenge: string, csr: Uint8Array<ArrayBuffer>) {
  return {
    certificate: fromPem('CERTIFICATE', earlier.certificatePem)[0]!,
    challenge,
    signature: await signProof(earlier.privateKeyPem, challenge, csr),
  };
}

function summaryOf({ sections: { system, gpus } }: NodeInventory) {
  const { hostname, vendor, product } = system;
  return { hostname, vendor, product, gpus: gpus.gpus.length };
}

async function identityOf(reply: JoinReply, privateKeyPem: string, joinAddress: string): Promise<Identity> {
  const [leaf] = reply.chain;
  if (leaf === undefined || reply.bundle.length === 0 || !(await belongsTogether(leaf, privateKeyPem))) {
    throw problem('INTERNAL', 'the certificate that came back is not over our key');
  }
  return {
    version: 1,
    nodeId: reply.nodeId,
    siteId: reply.siteId,
    spiffeId: reply.spiffeId,
    role: isNodeRole(reply.role) ? reply.role : 'node',
    privateKeyPem,
    certificatePem: reply.chain.map((der) => toPem('CERTIFICATE', der)).join(''),
    trustPem: reply.bundle.map((der) => toPem('CERTIFICATE', der)).join(''),
    notAfter: reply.notAfter,
    gateways: reply.gateways,
    joinAddress,
  };
}

class JoinClient {
  private readonly client: Client;
  private readonly clock: Clock;

  constructor(address: string, trustPem: string, clock: Clock) {
    this.clock = clock;
    this.client = openChannel(address, { trustPem });
  }

  challenge(): Promise<ChallengeReply> {
    return this.call('challenge', create(ChallengeRequestSchema));
  }
  join(request: JoinRequest): Promise<JoinReply> {
    return this.call('join', request);
  }
  close(): void {
    this.client.close();
  }

  private call<I, O>(method: string, request: I): Promise<O> {
    const { path, requestSerialize, responseDeserialize } = serviceDefinition(Join)[method]!;
    const deadline = this.clock.now() + DEADLINE_MS;
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest<I, O>(
        path,
        requestSerialize,
        responseDeserialize as (bytes: Buffer) => O,
        request,
        new Metadata(),
        { deadline },
        (error, reply) => (error === null ? resolve(reply!) : reject(error)),
      );
    });
  }
}
