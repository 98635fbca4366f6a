/**
 * What each kind of frame of an open session does. Heartbeats are answered from memory; what is written to the books goes
 * through the session's inbox. A kind without a row is one of a later version, or one whose place is only kept.
 */
import { fromBase64, toBase64 } from '#core/join/bytes.ts';
import type { Certificate } from '#core/join/evidence.ts';
import { X509Certificate } from '#core/join/x509.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import { toMillis } from '#core/kernel/time.ts';
import type { ClientFrame } from '#proto/gen/bettercompute/v1/session_pb.js';
import {
  type GatewayContext,
  recordEvents,
  recordObserved,
  type SpecReport,
  storeInventorySections,
} from '#services/sessions/index.ts';
import type { ApiClient } from '../api-client.ts';
import type { Inbox } from './inbox.ts';
import type { Session } from './session.ts';
import type { WorkSlots } from './work-slots.ts';

export interface FrameDeps {
  readonly books: GatewayContext;
  readonly slots: WorkSlots;
  readonly api: ApiClient;
}

type Frame = ClientFrame['frame'];
type Kind = Exclude<Frame['case'], undefined>;
type Value<K extends Kind> = Extract<Frame, { case: K }>['value'];
type Handler<K extends Kind> = (value: Value<K>, session: Session, inbox: Inbox, deps: FrameDeps) => void;

const observe = (report: SpecReport, session: Session, inbox: Inbox, { books, slots }: FrameDeps) => {
  const run = async () => {
    await slots.run(() => recordObserved(books, session.nodeId, session.epoch, report));
    session.recorded = Math.max(session.recorded, report.generation);
  };
  inbox.push('spec_observed', run, true);
};

const HANDLERS: { readonly [K in Kind]?: Handler<K> } = {
  heartbeat: (beat, session, inbox, deps) => {
    session.send({ case: 'heartbeatAck', value: { sequence: beat.sequence } });
    // The report itself may have been lost: every heartbeat says it again.
    const generation = Number(beat.observedGeneration);
    if (generation > session.recorded) {
      observe({ generation, attemptedGeneration: generation, errors: [] }, session, inbox, deps);
    }
  },

  specObserved: (seen, session, inbox, deps) => {
    const report = {
      generation: Number(seen.generation),
      attemptedGeneration: Number(seen.attemptedGeneration),
      errors: seen.errors.map(({ section, reason, message }) => ({ section, reason, message })),
    };
    observe(report, session, inbox, deps);
  },

  inventory: ({ sections }, session, inbox, { books, slots }) => {
    inbox.push('inventory', async () => {
      const reported = sections.map((s) => ({
        name: s.name,
        hash: s.hash,
        data: readJson(s.json, `inventory.${s.name.slice(0, 32)}`),
      }));
      const hashes = await slots.run(() => storeInventorySections(books, session.nodeId, session.epoch, reported));
      session.send({ case: 'inventoryStored', value: { hashes } });
    });
  },

  event: (e, session, inbox, { books, slots }) => {
    inbox.push('event', async () => {
      const event = { number: Number(e.number), type: e.type, at: e.at, data: readJson(e.json, 'event') as Json };
      const through = await slots.run(() => recordEvents(books, session.nodeId, session.epoch, [event]));
      session.send({ case: 'eventsStored', value: { number: BigInt(through) } });
    });
  },

  renew: ({ csr }, session, inbox, { api }) => {
    const { nodeId, epoch } = session;
    inbox.push('renew', async () => {
      const issued = await api.renew({ nodeId, epoch, serial: session.serial, csr: toBase64(csr) });
      session.serial = serialOf(issued);
      session.certificateEndsMs = toMillis(issued.notAfter);
      const { notBefore, notAfter } = issued;
      const [chain, bundle] = [issued.chain.map(fromBase64), issued.bundle.map(fromBase64)];
      session.send({ case: 'certificate', value: { chain, bundle, notBefore, notAfter } });
    });
  },

  goodbye: ({ reason }, session) => {
    session.left = reason === 'stopping';
    session.call.end();
  },

  hello: (_, session) => session.end('protocol', 'a second Hello'),
};

export function receive(session: Session, inbox: Inbox, { frame }: ClientFrame, deps: FrameDeps): void {
  if (frame.case === undefined) return;
  const handler = HANDLERS[frame.case] as Handler<Kind> | undefined;
  handler?.(frame.value, session, inbox, deps);
}

function readJson(bytes: Uint8Array, field: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw problem('INVALID_REQUEST', `${field} is not JSON`, {
      errors: [{ field, message: 'expected JSON in UTF-8' }],
    });
  }
}

function serialOf(issued: Certificate): string {
  return new X509Certificate(fromBase64(issued.chain[0]!)).serialNumber.toLowerCase();
}
