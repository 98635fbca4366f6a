/**
 * The join port: no client certificate, since whoever asks has none yet. Requests are translated and handed on to
 * JoinService; nothing is decided or signed here.
 */

import { create } from '@bufbuild/protobuf';
import type { ServerUnaryCall, sendUnaryData, UntypedServiceImplementation } from '@grpc/grpc-js';
import { fromBase64, toBase64 } from '#core/join/bytes.ts';
import { type JoinRequest as Evidence, JoinRequest, parseEvidence } from '#core/join/evidence.ts';
import { problem } from '#core/kernel/errors.ts';
import {
  ChallengeReplySchema,
  type JoinReply,
  JoinReplySchema,
  type JoinRequest as WireRequest,
} from '#proto/gen/bettercompute/v1/join_pb.js';
import { MalformedFrame } from '#proto/grpc.ts';
import type { ApiClient } from '../api-client.ts';
import { statusOf } from '../session/refusal.ts';
import type { WorkSlots } from '../session/work-slots.ts';

export interface JoinDeps {
  readonly api: ApiClient;
  readonly slots: WorkSlots;
  readonly addresses: () => readonly string[];
  readonly log: (level: 'info' | 'warn', message: string, about: Record<string, unknown>) => void;
}

const SPREAD_MS = 2_000;

export function joinService(deps: JoinDeps): UntypedServiceImplementation {
  const unary =
    <I, O>(name: string, run: (input: I, sourceIp: string) => Promise<O>) =>
    (call: ServerUnaryCall<I | MalformedFrame, O>, done: sendUnaryData<O>): void => {
      const { request } = call;
      const sourceIp = call.getPeer().replace(/:\d+$/, '').slice(0, 64);
      const answer = async () => {
        if (request instanceof MalformedFrame) {
          const errors = [{ field: 'request', message: request.reason }];
          throw problem('INVALID_REQUEST', request.reason, { errors });
        }
        return deps.slots.run(() => run(request, sourceIp));
      };
      answer().then(
        (reply) => done(null, reply),
        (e: unknown) => {
          const status = statusOf(e, SPREAD_MS);
          deps.log('warn', `${name} refused`, { sourceIp, code: status.name, why: status.message });
          done(status);
        },
      );
    };
  return {
    challenge: unary('challenge', async () => create(ChallengeReplySchema, { challenge: await deps.api.challenge() })),
    join: unary('join', async (request: WireRequest, sourceIp): Promise<JoinReply> => {
      const admission = await deps.api.join(evidenceOf(request), sourceIp);
      const { nodeId, outcome } = admission;
      deps.log('info', 'a machine joined', { nodeId, outcome, sourceIp });
      return create(JoinReplySchema, {
        ...admission,
        chain: admission.chain.map(fromBase64),
        bundle: admission.bundle.map(fromBase64),
        gateways: [...deps.addresses()],
      });
    }),
  };
}

function evidenceOf(request: WireRequest): Evidence {
  const { csr, requestKey, evidence, hardware, summary } = request;
  return parseEvidence(JoinRequest, {
    csr: toBase64(csr),
    requestKey,
    ...(evidence.case === 'token' ? { token: evidence.value } : {}),
    ...(evidence.case === 'proof'
      ? {
          proof: {
            certificate: toBase64(evidence.value.certificate),
            challenge: evidence.value.challenge,
            signature: toBase64(evidence.value.signature),
          },
        }
      : {}),
    hardware: {
      productUuid: hardware?.productUuid,
      serial: hardware?.serial,
      macs: hardware?.macs ?? [],
      gpuUuids: hardware?.gpuUuids ?? [],
    },
    summary: { hostname: summary?.hostname, vendor: summary?.vendor, product: summary?.product, gpus: summary?.gpus },
  });
}
