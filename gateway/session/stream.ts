/**
 * One stream from its first frame to its last: Hello against the certificate, the epoch from the books, then frames.
 * Heartbeats are answered from memory; what is written goes through the session's inbox.
 */

import { type Problem, problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';
import type { ClientFrame, Hello } from '#proto/gen/bettercompute/v1/session_pb.js';
import { MalformedFrame } from '#proto/grpc.ts';
import { type GatewayContext, type OpenedSession, openSession } from '#services/sessions/index.ts';
import type { ApiClient } from '../api-client.ts';
import { receive } from './frames.ts';
import { Inbox } from './inbox.ts';
import type { PausedListener } from './listener.ts';
import { type Peer, peerOf } from './peer.ts';
import { retryAfterMs, statusOf } from './refusal.ts';
import type { Registry } from './registry.ts';
import { Session, type SessionCall } from './session.ts';
import type { WorkSlots } from './work-slots.ts';

export const PROTOCOL = 1;
export const LEASE_SECONDS = 40;
export const HEARTBEAT_SECONDS = 10;

export interface StreamDeps {
  readonly clock: Clock;
  readonly registry: Registry;
  readonly listener: PausedListener;
  readonly slots: WorkSlots;
  readonly books: GatewayContext;
  readonly api: ApiClient;
  readonly leaseSeconds: number;
  readonly heartbeatSeconds: number;
  readonly addresses: () => readonly string[];
  /** Epoch of this gateway's own lease; throws UNAVAILABLE while it holds none. */
  readonly gatewayEpoch: () => number;
  /** A session may have a newer spec waiting. */
  readonly onOpened: (session: Session) => void;
  readonly log: (level: 'info' | 'warn' | 'error', message: string, about: Record<string, unknown>) => void;
}

const HELLO_DEADLINE_MS = 20_000;
/** Refused together, they come back spread over this. */
const SPREAD_MS = 5_000;
/** A peer that does not read its goodbye is cut off after this. */
const GOODBYE_MS = 2_000;
const TEXT_MAX = 128;

export function serveStream(call: SessionCall, deps: StreamDeps): void {
  const { clock, listener } = deps;
  const peer = call.getPeer();
  const over = new AbortController();
  let session: Session | undefined;
  let opening = false;
  let inbox: Inbox | undefined;

  const refuse = (e: unknown) => {
    if (over.signal.aborted) return;
    over.abort();
    call.emit('error', statusOf(e, SPREAD_MS));
  };
  const closed = () => {
    over.abort();
    if (session === undefined) return;
    session.ended = true;
    deps.registry.remove(session, clock.now());
  };
  /** Ends a session that stands, and makes sure that it ends. */
  const finish = (s: Session, p: Problem) => {
    if (p.code === 'STALE_EPOCH') deps.registry.forget(s);
    s.end(p.code === 'STALE_EPOCH' ? 'fenced' : 'protocol', p.message);
    void clock.sleep(GOODBYE_MS).then(() => listener.destroy(peer));
  };

  void clock
    .sleep(HELLO_DEADLINE_MS, over.signal)
    .then(() => {
      if (session === undefined && !opening) refuse(problem('DEADLINE_EXCEEDED', 'no Hello came'));
    })
    .catch(() => {});

  call.on('cancelled', closed);
  call.on('error', closed);
  call.on('close', closed);
  call.on('end', () => {
    closed();
    if (!call.writableEnded) call.end();
  });

  call.on('data', (frame: ClientFrame | MalformedFrame) => {
    if (over.signal.aborted) return;
    if (frame instanceof MalformedFrame) {
      if (session === undefined) return refuse(malformed(frame.reason));
      return finish(session, malformed(frame.reason));
    }
    if (session !== undefined && inbox !== undefined) {
      session.lastHeardMs = clock.now();
      return receive(session, inbox, frame, deps);
    }
    if (opening || frame.frame.case !== 'hello') return refuse(malformed('the first frame must be one Hello'));
    opening = true;
    listener.claim(peer);
    const hello = frame.frame.value;
    // Nothing is read until the answer is there, so that no frame overtakes the Welcome.
    call.pause();
    void open(hello, call, deps)
      .then(([opened, known]) => {
        if (over.signal.aborted) return;
        session = begin(call, peer, hello, opened, known, deps);
        const s = session;
        inbox = new Inbox({
          clock,
          signal: over.signal,
          onFull: () => {
            s.behind = true;
            call.pause();
          },
          onRoom: () => {
            s.behind = false;
            s.lastHeardMs = clock.now();
            call.resume();
          },
          onFailure: (p, what) => {
            deps.log('warn', 'a frame was refused', {
              nodeId: s.nodeId,
              epoch: s.epoch,
              what,
              code: p.code,
              why: p.message,
            });
            if (p.code === 'STALE_EPOCH') finish(s, p);
            else
              s.send({
                case: 'pushback',
                value: {
                  frame: what,
                  retryMs: retryAfterMs(p) ?? 300_000,
                  reason: `${p.code}: ${p.message}`.slice(0, 500),
                },
              });
          },
        });
        call.resume();
        deps.onOpened(s);
      })
      .catch(refuse);
  });
}

const malformed = (why: string) => problem('INVALID_REQUEST', why, { errors: [{ field: 'frame', message: why }] });

/** Checks the Hello against the certificate and takes the node over. */
async function open(hello: Hello, call: SessionCall, deps: StreamDeps): Promise<[OpenedSession, Peer]> {
  const known = peerOf(call.getAuthContext());
  if (hello.protocol !== PROTOCOL) {
    throw malformed(`protocol ${hello.protocol} is not spoken here, only ${PROTOCOL}`);
  }
  if (hello.nodeId !== known.nodeId) {
    throw problem('PERMISSION_DENIED', 'the certificate is of another node', {
      action: 'session',
      resource: hello.nodeId,
    });
  }
  if (known.role !== 'node') {
    throw problem('PERMISSION_DENIED', `role ${known.role} has no sessions here`, { action: 'session' });
  }
  for (const field of ['journalId', 'bootId', 'bcdVersion'] as const) {
    if (hello[field] === '' || hello[field].length > TEXT_MAX)
      throw malformed(`hello.${field} must have 1 to ${TEXT_MAX} characters`);
  }
  const opened = await deps.slots.run(() =>
    openSession(deps.books, deps.gatewayEpoch(), {
      nodeId: known.nodeId,
      serial: known.serial,
      journalId: hello.journalId,
      bootId: hello.bootId,
      bcdVersion: hello.bcdVersion,
      observedGeneration: Number(hello.observedGeneration),
    }),
  );
  return [opened, known];
}

function begin(
  call: SessionCall,
  peer: string,
  hello: Hello,
  opened: OpenedSession,
  known: Peer,
  deps: StreamDeps,
): Session {
  const session = new Session(call, {
    nodeId: known.nodeId,
    epoch: opened.epoch,
    peer,
    serial: known.serial,
    certificateEndsMs: known.notAfterMs,
    delivered: Number(hello.observedGeneration),
    recorded: opened.observedGeneration,
    nowMs: deps.clock.now(),
  });
  const older = deps.registry.add(session);
  if (older !== undefined) {
    older.end('replaced', `a newer session of this node has epoch ${opened.epoch}`);
    // The older stream is half-open as likely as not: nobody is there to read its goodbye.
    void deps.clock.sleep(GOODBYE_MS).then(() => deps.listener.destroy(older.peer));
  }
  session.send({
    case: 'welcome',
    value: {
      epoch: BigInt(opened.epoch),
      leaseSeconds: deps.leaseSeconds,
      heartbeatSeconds: deps.heartbeatSeconds,
      specGeneration: BigInt(opened.specGeneration),
      sectionHashes: { ...opened.sectionHashes },
      gateways: [...deps.addresses()],
    },
  });
  session.send({ case: 'eventsStored', value: { number: BigInt(opened.eventsThrough) } });
  return session;
}
