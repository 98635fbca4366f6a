/** One open session as the gateway knows it: soft state, all of it. */

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { type ClientFrame, type ServerFrame, ServerFrameSchema } from '#proto/gen/bettercompute/v1/session_pb.js';
import type { MalformedFrame } from '#proto/grpc.ts';

export type SessionCall = ServerDuplexStream<ClientFrame | MalformedFrame, ServerFrame>;
type FrameInit = Exclude<MessageInitShape<typeof ServerFrameSchema>['frame'], undefined>;

export type EndReason =
  | 'replaced'
  | 'fenced'
  | 'retired'
  | 'draining'
  | 'overloaded'
  | 'protocol'
  | 'certificate-expired';

export class Session {
  readonly nodeId: string;
  readonly epoch: number;
  /** `address:port` of the connection. */
  readonly peer: string;
  readonly call: SessionCall;
  /** Serial number of the newest certificate that was issued to this node. */
  serial: string;
  certificateEndsMs: number;
  /** Newest generation written to the stream; observed ones count as delivered. */
  delivered: number;
  /** Newest generation that is recorded as observed. */
  recorded: number;
  lastHeardMs: number;
  /** Reading stands still because we are behind: silence is our own doing then. */
  behind = false;
  ended = false;
  /** Set when the daemon said goodbye: it will not be back within its lease. */
  left = false;

  constructor(
    call: SessionCall,
    s: {
      nodeId: string;
      epoch: number;
      peer: string;
      serial: string;
      certificateEndsMs: number;
      delivered: number;
      recorded: number;
      nowMs: number;
    },
  ) {
    this.call = call;
    this.nodeId = s.nodeId;
    this.epoch = s.epoch;
    this.peer = s.peer;
    this.serial = s.serial;
    this.certificateEndsMs = s.certificateEndsMs;
    this.delivered = s.delivered;
    this.recorded = s.recorded;
    this.lastHeardMs = s.nowMs;
  }

  /** False when the stream is over. Frames that the peer does not read pile up here until its lease lapses. */
  send(frame: FrameInit): boolean {
    if (this.ended || this.call.destroyed || this.call.writableEnded) return false;
    this.call.write(create(ServerFrameSchema, { frame }));
    return true;
  }

  /** Bytes that the peer has not taken yet. */
  get backlog(): number {
    return this.call.writableLength;
  }

  /** Says why and ends the stream. The connection is for its owner to close. */
  end(reason: EndReason, message: string, pushbackMs = 0): void {
    if (this.ended) return;
    this.send({ case: 'goodbye', value: { reason, message, pushbackMs } });
    this.ended = true;
    this.call.end();
  }
}
