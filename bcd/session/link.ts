/**
 * One session over its own connection: Hello, Welcome, frames, end. It knows nothing of what the frames mean; it keeps
 * the heartbeat, notices silence, and says in the end why it ended.
 */
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { type ClientDuplexStream, Metadata } from '@grpc/grpc-js';
import type { Clock } from '#core/kernel/time.ts';
import {
  type ClientFrame,
  ClientFrameSchema,
  type ServerFrame,
  Session,
  type Welcome,
} from '#proto/gen/bettercompute/v1/session_pb.js';
import { serviceDefinition } from '#proto/grpc.ts';
import type { Identity } from '../journal/identity.ts';
import { openChannel } from './channel.ts';
import { noAnswer, type Refusal, refusalOf } from './grpc-problem.ts';

export type FrameInit = Exclude<MessageInitShape<typeof ClientFrameSchema>['frame'], undefined>;
export type HelloInit = Extract<FrameInit, { case: 'hello' }>['value'];

export type LinkEnd =
  | { readonly kind: 'goodbye'; readonly reason: string; readonly message: string; readonly pushbackMs: number }
  | { readonly kind: 'refused'; readonly refusal: Refusal; readonly welcomed: boolean }
  | { readonly kind: 'stopped' };

export interface LinkOptions {
  readonly address: string;
  readonly identity: Identity;
  readonly clock: Clock;
  readonly hello: HelloInit;
  readonly observedGeneration: () => number;
  readonly onWelcome: (welcome: Welcome, send: (frame: FrameInit) => void) => void;
  readonly onFrame: (frame: ServerFrame) => void;
  /** Says goodbye and ends. */
  readonly signal: AbortSignal;
}

const KEEPALIVE = {
  'grpc.keepalive_time_ms': 15_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.enable_retries': 0,
} as const;
const WELCOME_DEADLINE_MS = 30_000;
const GOODBYE_MS = 1_000;

type Stream = ClientDuplexStream<ClientFrame, ServerFrame>;

/** Resolves when the session is over; never rejects. */
export async function runLink(o: LinkOptions): Promise<LinkEnd> {
  const { identity, clock, signal } = o;
  const client = openChannel(o.address, identity, KEEPALIVE);
  const { path, requestSerialize, responseDeserialize } = serviceDefinition(Session)['open']!;
  const stream: Stream = client.makeBidiStreamRequest<ClientFrame, ServerFrame>(
    path,
    requestSerialize,
    responseDeserialize as (bytes: Buffer) => ServerFrame,
    new Metadata(),
  );
  const over = new AbortController();
  let heardMs = clock.now();
  let silenceMs = WELCOME_DEADLINE_MS;
  let welcomed = false;
  let sequence = 0n;
  const send = (frame: FrameInit) => {
    if (!over.signal.aborted && !stream.destroyed) stream.write(create(ClientFrameSchema, { frame }));
  };

  const end = new Promise<LinkEnd>((resolve) => {
    const finish = (e: LinkEnd) => {
      if (over.signal.aborted) return;
      over.abort();
      resolve(e);
    };
    const lost = (why: unknown) =>
      finish(signal.aborted ? { kind: 'stopped' } : { kind: 'refused', refusal: refusalOf(why), welcomed });
    stream.on('error', lost);
    stream.on('end', () => lost(noAnswer('the session')));
    stream.on('close', () => lost(noAnswer('the session')));
    stream.on('data', (frame: ServerFrame) => {
      heardMs = clock.now();
      const f = frame.frame;
      if (f.case === 'goodbye') {
        const { reason, message, pushbackMs } = f.value;
        finish({ kind: 'goodbye', reason, message, pushbackMs });
      } else if (f.case === 'welcome') {
        welcomed = true;
        silenceMs = Math.max(5, f.value.leaseSeconds) * 1000;
        o.onWelcome(f.value, send);
        void beat(Math.max(1, f.value.heartbeatSeconds) * 1000);
      } else if (welcomed) o.onFrame(frame);
    });
    signal.addEventListener('abort', () => {
      send({ case: 'goodbye', value: { reason: 'stopping', message: '', pushbackMs: 0 } });
      stream.end();
      void clock.sleep(GOODBYE_MS).then(() => finish({ kind: 'stopped' }));
    });
    void watchSilence().then((silent) => {
      if (silent) lost(noAnswer('the session'));
    });
  });

  /** A half-open connection gives no error: only that nothing comes any more. */
  async function watchSilence(): Promise<boolean> {
    while (!over.signal.aborted) {
      const left = heardMs + silenceMs - clock.now();
      if (left <= 0) return true;
      await clock.sleep(Math.min(left, 5_000), over.signal).catch(() => {});
    }
    return false;
  }
  async function beat(everyMs: number): Promise<void> {
    while (!over.signal.aborted) {
      await clock.sleep(everyMs * (0.8 + Math.random() * 0.2), over.signal).catch(() => {});
      const observedGeneration = BigInt(o.observedGeneration());
      send({ case: 'heartbeat', value: { sequence: ++sequence, observedGeneration, clockMs: BigInt(clock.now()) } });
    }
  }

  send({ case: 'hello', value: o.hello });
  const result = await end;
  stream.cancel();
  client.close();
  return result;
}
