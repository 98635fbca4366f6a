/** What a gateway does with those it must not serve, and with sessions that go wrong. */
import { connect } from 'node:net';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { type Client, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Identity } from '#bcd/journal/identity.ts';
import { type ChannelTrust, openChannel } from '#bcd/session/channel.ts';
import { refusalOf } from '#bcd/session/grpc-problem.ts';
import { authorityOf } from '#bcd/session/pin.ts';
import { makeAuthority } from '#cli/dev/certificates.ts';
import { newId } from '#core/kernel/ids.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
import { certificateFor } from '#kit/certificates.ts';
import { openRoad, type Road } from '#kit/gateway.ts';
import {
  ClientFrameSchema,
  type HelloSchema,
  type ServerFrame,
  ServerFrameSchema,
} from '#proto/gen/bettercompute/v1/session_pb.js';
import { openAuthority } from '#services/join/index.ts';
import { recordObserved, storeInventorySections } from '#services/sessions/index.ts';

let road: Road;
let identity: Identity;
beforeAll(async () => {
  road = await openRoad({ leaseSeconds: 2, heartbeatSeconds: 1 });
  const machine = await road.machine(1);
  await road.until('it is up', async () => machine.epochs.length > 0);
  await machine.stop();
  identity = machine.identity;
});
afterAll(() => road?.close());

const PATH = '/bettercompute.v1.Session/Open';

/** A client of bytes: what it sends need not be a frame. */
class Raw {
  readonly frames: ServerFrame[] = [];
  readonly ended: Promise<ServiceError>;
  private readonly stream: ReturnType<Client['makeBidiStreamRequest']>;
  private readonly client: Client;

  constructor(trust: ChannelTrust = identity, port = road.gateway.sessionPort) {
    this.client = openChannel(`127.0.0.1:${port}`, trust, { 'grpc.max_send_message_length': -1 });
    const stream = this.client.makeBidiStreamRequest<Buffer, ServerFrame>(
      PATH,
      (bytes) => bytes,
      (bytes) => fromBinary(ServerFrameSchema, bytes),
      new Metadata(),
    );
    stream.on('data', (f: ServerFrame) => this.frames.push(f));
    this.ended = new Promise((resolve) => {
      let error: ServiceError | undefined;
      stream.on('error', (e: ServiceError) => {
        error = e;
        resolve(e);
      });
      stream.on('status', (s: ServiceError) => resolve(error ?? s));
    });
    this.stream = stream as never;
  }
  bytes(data: Uint8Array) {
    this.stream.write(Buffer.from(data) as never);
    return this;
  }
  send(frame: MessageInitShape<typeof ClientFrameSchema>['frame']) {
    return this.bytes(toBinary(ClientFrameSchema, create(ClientFrameSchema, { frame })));
  }
  hello(part: MessageInitShape<typeof HelloSchema> = {}) {
    const value = { protocol: 1, nodeId: identity.nodeId, journalId: 'j', bootId: 'b', bcdVersion: '1', ...part };
    return this.send({ case: 'hello', value });
  }
  async welcome(): Promise<number> {
    const frame = await road.until('welcome', async () => this.frames.find((f) => f.frame.case === 'welcome'));
    return frame.frame.case === 'welcome' ? Number(frame.frame.value.epoch) : 0;
  }
  goodbye() {
    return road.until('goodbye', async () => {
      const f = this.frames.find((x) => x.frame.case === 'goodbye');
      return f?.frame.case === 'goodbye' ? f.frame.value : undefined;
    });
  }
  async refusal() {
    return refusalOf(await this.ended);
  }
  close() {
    this.stream.cancel();
    this.client.close();
  }
}

async function withRaw<T>(run: (raw: Raw) => Promise<T>, trust?: ChannelTrust): Promise<T> {
  const raw = new Raw(trust);
  try {
    return await run(raw);
  } finally {
    raw.close();
  }
}
const epochOf = async () =>
  (await road.t.db.query<{ epoch: number }>('select epoch from nodes where id = $1', [identity.nodeId]))[0]!.epoch;

describe('who may open a session', () => {
  const trustPem = () => road.ca.certificatePem;

  test('no certificate, a foreign authority, an expired certificate: the handshake fails', async () => {
    const foreign = await openAuthority({ trustDomain: 'test.fleet', ...(await makeAuthority('test.fleet')) });
    const ours = await openAuthority({ trustDomain: 'test.fleet', ...road.ca });
    const names = { nodeId: identity.nodeId, siteId: road.siteId, role: 'node' } as const;
    const longAgo = fromMillis(systemClock.now() - 3 * 86_400_000);
    const cases: ChannelTrust[] = [
      { trustPem: trustPem() },
      { trustPem: trustPem(), ...(await certificateFor(foreign, names)) },
      { trustPem: trustPem(), ...(await certificateFor(ours, names, longAgo)) },
    ];
    for (const trust of cases) {
      const { problem } = await withRaw((raw) => raw.hello().refusal(), trust);
      expect(problem.code).toBe('UNAVAILABLE');
    }
  });

  test('another node, another role, another name, a certificate that is not in the books', async () => {
    const ours = await openAuthority({ trustDomain: 'test.fleet', ...road.ca });
    const sign = async (part: Partial<{ nodeId: string; siteId: string; role: 'node' | 'site' }>) => ({
      trustPem: trustPem(),
      ...(await certificateFor(ours, { nodeId: identity.nodeId, siteId: road.siteId, role: 'node', ...part })),
    });
    const ask = async (trust: ChannelTrust, hello = {}) =>
      (await withRaw((raw) => raw.hello(hello).refusal(), trust)).problem;
    expect((await ask(identity, { nodeId: newId('node') })).code).toBe('PERMISSION_DENIED');
    expect((await ask(await sign({ role: 'site' }))).code).toBe('PERMISSION_DENIED');
    expect((await ask(await sign({ nodeId: 'no-node' }))).code).toBe('UNAUTHENTICATED');
    const unknown = await ask(await sign({}));
    expect(unknown).toMatchObject({ code: 'UNAUTHENTICATED', message: expect.stringContaining('not in the books') });
  });

  test('a revoked certificate, a retired node', async () => {
    const machine = await road.machine(20);
    await road.until('up', async () => machine.epochs.length > 0);
    await machine.stop();
    const ask = async () =>
      (await withRaw((raw) => raw.hello({ nodeId: machine.identity.nodeId }).refusal(), machine.identity)).problem;
    await road.t.db.query('update node_certificates set revoked_at = compute_now() where node_id = $1', [
      machine.identity.nodeId,
    ]);
    expect(await ask()).toMatchObject({ code: 'UNAUTHENTICATED', message: expect.stringContaining('revoked') });
    await road.t.db.query('update node_certificates set revoked_at = null where node_id = $1', [
      machine.identity.nodeId,
    ]);
    await road.t.db.query("select transition_node($1, 'retire', 'test')", [machine.identity.nodeId]);
    expect(await ask()).toMatchObject({ code: 'JOIN_REFUSED', message: expect.stringContaining('retired') });
  });

  test('the first contact refuses an authority that is not the pinned one', async () => {
    const at = `127.0.0.1:${road.gateway.joinPort}`;
    expect(await authorityOf(at, road.caPin, systemClock)).toContain('BEGIN CERTIFICATE');
    await expect(authorityOf(at, `sha256/${'A'.repeat(43)}=`, systemClock)).rejects.toMatchObject({
      code: 'JOIN_REFUSED',
    });
    await expect(authorityOf(at, 'sha256/short', systemClock)).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    await expect(authorityOf('127.0.0.1:1', road.caPin, systemClock)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });
});

describe('frames that are none', () => {
  const junk = Uint8Array.from([0xff, 0xff, 0xff, 0xff, 0x00]);

  test('malformed first frame, a heartbeat before Hello, a wrong protocol, an empty field: INVALID_REQUEST says which', async () => {
    const first = await withRaw((raw) => raw.bytes(junk).refusal());
    expect(first.problem).toMatchObject({ code: 'INVALID_REQUEST', message: expect.stringContaining('ClientFrame') });
    const early = await withRaw((raw) => raw.send({ case: 'heartbeat', value: {} }).refusal());
    expect(early.problem.message).toContain('Hello');
    const protocol = await withRaw((raw) => raw.hello({ protocol: 7 }).refusal());
    expect(protocol.problem.message).toContain('protocol 7');
    const field = await withRaw((raw) => raw.hello({ journalId: '' }).refusal());
    expect(field.problem.message).toContain('journalId');
    const long = await withRaw((raw) => raw.hello({ bootId: 'x'.repeat(129) }).refusal());
    expect(long.problem.message).toContain('bootId');
  });

  test('a malformed frame in a session ends that session, and no other', async () => {
    await withRaw(async (raw) => {
      await raw.hello().welcome();
      raw.bytes(junk);
      expect(await raw.goodbye()).toMatchObject({ reason: 'protocol' });
    });
    await withRaw(async (raw) => expect(await raw.hello().welcome()).toBeGreaterThan(0));
  });

  test('a frame above 4 MiB is refused as such', async () => {
    await withRaw(async (raw) => {
      await raw.hello().welcome();
      raw.bytes(new Uint8Array(4 * 1024 * 1024 + 1));
      expect((await raw.ended).code).toBe(status.RESOURCE_EXHAUSTED);
    });
  });

  test('a kind of a later version is passed over, and unknown fields survive', async () => {
    const later = new BinaryWriter().tag(900, 2).string('from the future').finish();
    await withRaw(async (raw) => {
      await raw.hello().welcome();
      raw.bytes(later).send({ case: 'heartbeat', value: { sequence: 5n } });
      await road.until('ack', async () => raw.frames.some((f) => f.frame.case === 'heartbeatAck'));
    });
    const read = fromBinary(ClientFrameSchema, later);
    expect(toBinary(ClientFrameSchema, read)).toEqual(later);
  });

  test('a second Hello ends the session', async () => {
    await withRaw(async (raw) => {
      await raw.hello().welcome();
      raw.hello();
      expect(await raw.goodbye()).toMatchObject({ reason: 'protocol' });
    });
  });

  test('an inventory that lies about its hash, is no JSON or of no shape is pushed back; the session goes on', async () => {
    await withRaw(async (raw) => {
      await raw.hello().welcome();
      const json = (text: string) => new TextEncoder().encode(text);
      const section = (name: string, text: string) =>
        raw.send({ case: 'inventory', value: { sections: [{ name, hash: 'abc', json: json(text) }] } });
      section('cpu', '{"status":"ok"}');
      section('cpu', '{');
      section('disks', '{"status":"ok","disks":"none"}');
      const reasons = await road.until('three pushbacks', async () => {
        const all = raw.frames.flatMap((f) => (f.frame.case === 'pushback' ? [f.frame.value.reason] : []));
        return all.length === 3 && all;
      });
      expect(reasons[0]).toContain('hash');
      expect(reasons[1]).toContain('not JSON');
      expect(reasons[2]).toContain('disks');
      raw.send({ case: 'heartbeat', value: { sequence: 1n } });
      await road.until('ack', async () => raw.frames.some((f) => f.frame.case === 'heartbeatAck'));
    });
  });

  test('bytes that are no TLS, and a peer that connects and says nothing, harm nobody', async () => {
    const noise = connect(road.gateway.sessionPort, '127.0.0.1');
    noise.on('error', () => {}).resume();
    const closed = new Promise((resolve) => noise.once('close', resolve));
    noise.write('GET / HTTP/1.1\r\n\r\n');
    const silent = connect(road.gateway.sessionPort, '127.0.0.1');
    await withRaw(async (raw) => expect(await raw.hello().welcome()).toBeGreaterThan(0));
    await closed;
    silent.destroy();
  });
});

describe('epochs fence', () => {
  const books = () => ({ db: road.t.db, gatewayId: 'test-1' });

  test('a newer session ends the older one, and what the older says is refused', async () => {
    const [older, newer] = [new Raw(), new Raw()];
    const first = await older.hello().welcome();
    const second = await newer.hello({ bootId: 'rebooted' }).welcome();
    expect(second).toBe(first + 1);
    expect(await older.goodbye()).toMatchObject({ reason: 'replaced' });
    const report = { generation: 99, attemptedGeneration: 99, errors: [] };
    const stale = { code: 'STALE_EPOCH' };
    await expect(recordObserved(books(), identity.nodeId, first, report)).rejects.toMatchObject(stale);
    const { hashSection, parseSection } = await import('#core/inventory/index.ts');
    const cpu = parseSection('cpu', { status: 'ok' });
    const sections = [{ name: 'cpu', hash: hashSection('cpu', cpu), data: cpu }];
    await expect(storeInventorySections(books(), identity.nodeId, first, sections)).rejects.toMatchObject(stale);
    for (const raw of [older, newer]) raw.close();
  });

  test('a session that another gateway took over is ended by the next sweep', async () => {
    await withRaw(async (raw) => {
      const mine = await raw.hello().welcome();
      await road.t.db.query("update nodes set epoch = epoch + 1, gateway_id = 'elsewhere' where id = $1", [
        identity.nodeId,
      ]);
      expect(await raw.goodbye()).toMatchObject({ reason: 'fenced' });
      expect(await epochOf()).toBe(mine + 1);
    });
    await road.t.db.query("update nodes set gateway_id = 'test-1' where id = $1", [identity.nodeId]);
  });

  test('a peer that falls silent is cut off and unreachable; what it holds stays', async () => {
    const raw = new Raw();
    const epoch = await raw.hello().welcome();
    // It never sends a heartbeat, and its connection gives no error: only the lease ends it.
    await road.until('unreachable', async () => {
      const [n] = await road.t.db.query<{ connectivity: string }>('select connectivity from nodes where id = $1', [
        identity.nodeId,
      ]);
      return n!.connectivity === 'unreachable';
    });
    expect((await raw.refusal()).problem.code).toBe('UNAVAILABLE');
    raw.close();
    expect(await epochOf()).toBe(epoch);
    const [reasons] = await road.t.db.query<{ unschedulable_reasons: string[] }>(
      'select unschedulable_reasons from nodes where id = $1',
      [identity.nodeId],
    );
    expect(reasons!.unschedulable_reasons).toContain('unreachable');
    const events = await road.t.db.query("select 1 from events where subject_id = $1 and type = 'node.unreachable'", [
      identity.nodeId,
    ]);
    expect(events.length).toBeGreaterThan(0);
    await road.until('the connection is freed', async () => road.gateway.metrics()['connections'] === 0);
  });
});

test('a join port that is asked nonsense answers with the field', async () => {
  const client = openChannel(`127.0.0.1:${road.gateway.joinPort}`, { trustPem: road.ca.certificatePem });
  const ask = (bytes: Uint8Array) =>
    new Promise<unknown>((resolve) =>
      client.makeUnaryRequest(
        '/bettercompute.v1.Join/Join',
        (b: Uint8Array) => Buffer.from(b),
        (b) => b,
        bytes,
        { deadline: systemClock.now() + 10_000 },
        (e) => resolve(e),
      ),
    );
  const malformed = refusalOf(await ask(Uint8Array.from([0xff, 0xff])));
  expect(malformed.problem).toMatchObject({ code: 'INVALID_REQUEST', details: { errors: [{ field: 'request' }] } });
  const empty = refusalOf(await ask(new Uint8Array(0)));
  expect(empty.problem.code).toBe('INVALID_REQUEST');
  expect((empty.problem.details as unknown as { errors: { field: string }[] }).errors.map((e) => e.field)).toContain(
    'csr',
  );
  client.close();
});
