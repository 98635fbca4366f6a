/**
 * From a protobuf service to the shape that grpc-js takes. The generated code knows nothing of a transport; this is all
 * that stands between the two.
 */
import { type DescMessage, type DescService, fromBinary, type MessageShape, toBinary } from '@bufbuild/protobuf';
import type { ServiceDefinition } from '@grpc/grpc-js';

/** Most bytes of one frame, in both directions. */
export const MAX_FRAME_BYTES = 4 * 1024 * 1024;

/** Channel and server options that keep to the bound. */
export const FRAME_LIMITS = {
  'grpc.max_receive_message_length': MAX_FRAME_BYTES,
  'grpc.max_send_message_length': MAX_FRAME_BYTES,
} as const;

/** In place of a request that could not be read. grpc-js would call it an internal error; it is the peer's fault. */
export class MalformedFrame {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

function codec<D extends DescMessage>(desc: D) {
  return {
    write: (message: MessageShape<D>) => Buffer.from(toBinary(desc, message)),
    read: (bytes: Buffer) => fromBinary(desc, bytes),
    tryRead: (bytes: Buffer) => {
      try {
        return fromBinary(desc, bytes);
      } catch (e) {
        return new MalformedFrame(`not a ${desc.typeName}: ${e instanceof Error ? e.message : String(e)}`);
      }
    },
  };
}

/** Requests arrive at a server as the message or as MalformedFrame. */
export function serviceDefinition(service: DescService): ServiceDefinition {
  return Object.fromEntries(
    service.methods.map((method) => {
      const [input, output] = [codec(method.input), codec(method.output)];
      return [
        method.localName,
        {
          path: `/${service.typeName}/${method.name}`,
          requestStream: method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming',
          responseStream: method.methodKind === 'server_streaming' || method.methodKind === 'bidi_streaming',
          requestSerialize: input.write,
          requestDeserialize: input.tryRead,
          responseSerialize: output.write,
          responseDeserialize: output.read,
        },
      ];
    }),
  );
}
