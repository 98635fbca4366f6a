/**
 * The daemon's core, the same on a real machine and on a simulated one: converges what it last knew, keeps one session
 * to one gateway, and comes back whenever that ends. It gives up on nothing but its own end: what is refused for good is
 * asked again slowly, since an operator may put it right.
 */
import type { NodeInventory } from '#core/inventory/index.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import { toProblem } from '#core/kernel/errors.ts';
import { type Clock, fromMillis, toMillis } from '#core/kernel/time.ts';
import type { ServerFrame, Welcome } from '#proto/gen/bettercompute/v1/session_pb.js';
import type { Hands } from '../hands/hands.ts';
import { type Identity, saveIdentity } from '../journal/identity.ts';
import type { Journal } from '../journal/journal.ts';
import { BCD_VERSION } from '../version.ts';
import { BackOff } from './back-off.ts';
import { Convergence } from './convergence.ts';
import { InventoryReporter } from './inventory-reporter.ts';
import { join } from './join.ts';
import { type FrameInit, type LinkEnd, runLink } from './link.ts';
import { Renewal } from './renewal.ts';

export interface DaemonOptions {
  readonly hands: Hands;
  readonly journal: Journal;
  readonly identity: Identity;
  /** Where renewed identities are kept; a machine without one forgets them. */
  readonly stateDirectory: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly log: (level: 'info' | 'warn', message: string, about?: Record<string, unknown>) => void;
  readonly onWelcome?: (welcome: Welcome) => void;
  readonly inventoryEveryMs?: number;
  readonly reconnectCeilingMs?: number;
}

const PROTOCOL = 1;
const INVENTORY_MS = 60_000;
const EVENTS_AT_ONCE = 64;
/** After a refusal that only an operator can lift. */
const REFUSED_MS = { floor: 30_000, spread: 270_000 } as const;

/** Runs until the signal. */
export async function runDaemon(o: DaemonOptions): Promise<void> {
  await new Daemon(o).run();
}

class Daemon {
  private identity: Identity;
  private readonly o: DaemonOptions;
  private readonly backOff: BackOff;
  private readonly convergence: Convergence;
  private readonly inventory: InventoryReporter;
  private readonly renewal: Renewal;
  private send: ((frame: FrameInit) => void) | undefined;
  private gateway = 0;
  private eventsSent = 0;

  constructor(o: DaemonOptions) {
    this.o = o;
    this.identity = o.identity;
    this.backOff = new BackOff(o.reconnectCeilingMs ?? 30_000);
    const onError = (e: unknown) => o.log('warn', 'a task failed', { why: toProblem(e).message, detail: String(e) });
    this.inventory = new InventoryReporter({
      hands: o.hands,
      clock: o.clock,
      everyMs: o.inventoryEveryMs ?? INVENTORY_MS,
      onReading: () => this.convergence.kick(),
      onError,
    });
    this.convergence = new Convergence({
      hands: o.hands,
      journal: o.journal,
      clock: o.clock,
      inventory: () => this.currentInventory(),
      onReport: (report) => this.say(report),
      onError,
    });
    this.renewal = new Renewal({
      stateDirectory: o.stateDirectory,
      clock: o.clock,
      identity: () => this.identity,
      onRenewed: (identity) => {
        this.identity = identity;
        o.log('info', 'certificate renewed', { notAfter: identity.notAfter });
      },
    });
  }

  async run(): Promise<void> {
    const { clock, signal, journal, hands } = this.o;
    journal.recordEvent({
      type: 'daemon_started',
      at: fromMillis(clock.now()),
      data: { version: BCD_VERSION, bootId: await hands.bootId(), interrupted: [...journal.interrupted] },
    });
    const reading = this.inventory.run(signal);
    while (!signal.aborted) {
      const wait = await this.once();
      if (signal.aborted) break;
      await clock.sleep(wait, signal).catch(() => {});
    }
    this.convergence.stop();
    await reading;
  }

  /** One try at a session. Answers how long to wait before the next. */
  private async once(): Promise<number> {
    const { clock, log, signal } = this.o;
    if (toMillis(this.identity.notAfter) <= clock.now()) {
      const wait = await this.rejoin();
      if (wait > 0) return wait;
    }
    const addresses = this.identity.gateways;
    const address = addresses[this.gateway % Math.max(1, addresses.length)];
    if (address === undefined) {
      log('warn', 'no gateway is known; join again');
      return REFUSED_MS.floor;
    }
    const closed = new AbortController();
    const end = await runLink({
      address,
      identity: this.identity,
      clock,
      signal,
      hello: {
        protocol: PROTOCOL,
        nodeId: this.identity.nodeId,
        journalId: this.o.journal.id,
        bcdVersion: BCD_VERSION,
        bootId: await this.o.hands.bootId(),
        capabilities: [],
        observedGeneration: BigInt(this.convergence.observedGeneration),
        sectionHashes: { ...this.inventory.hashes },
      },
      observedGeneration: () => this.convergence.observedGeneration,
      onWelcome: (welcome, send) => this.welcomed(welcome, send, closed.signal),
      onFrame: (frame) => this.receive(frame),
    });
    closed.abort();
    this.send = undefined;
    this.inventory.closed();
    return this.judge(end, address);
  }

  private welcomed(welcome: Welcome, send: (frame: FrameInit) => void, over: AbortSignal): void {
    const { log, onWelcome } = this.o;
    this.backOff.succeeded();
    this.send = send;
    this.eventsSent = 0;
    log('info', 'session opened', { epoch: Number(welcome.epoch), generation: Number(welcome.specGeneration) });
    this.learnGateways(welcome.gateways);
    void this.inventory.opened(welcome.sectionHashes, (sections) =>
      send({ case: 'inventory', value: { sections: sections.map((s) => ({ ...s })) } }),
    );
    if (this.convergence.report !== undefined) this.say(this.convergence.report);
    void this.renewal.run(send, over);
    void this.sendEvents(over);
    onWelcome?.(welcome);
  }

  private receive({ frame }: ServerFrame): void {
    switch (frame.case) {
      case 'spec': {
        const { generation, canonical, sha256 } = frame.value;
        void this.convergence.deliver(Number(generation), canonical, sha256);
        return;
      }
      case 'inventoryStored':
        this.inventory.stored(frame.value.hashes);
        return;
      case 'inventoryRequest':
        void this.inventory.asked(frame.value.names);
        return;
      case 'eventsStored':
        this.o.journal.acknowledge(Number(frame.value.number));
        return;
      case 'certificate':
        void this.renewal.issued(frame.value).catch((e: unknown) => {
          this.o.log('warn', 'the renewed certificate could not be kept', { why: String(e) });
        });
        return;
      case 'pushback':
        this.o.log('warn', 'the gateway did not take a frame', { frame: frame.value.frame, why: frame.value.reason });
        if (frame.value.frame === 'inventory') this.inventory.hold(frame.value.retryMs);
        if (frame.value.frame === 'renew') this.renewal.hold(frame.value.retryMs);
        return;
      default:
        // A heartbeat's answer, or a kind of a later version.
        return;
    }
  }

  private async judge(end: LinkEnd, address: string): Promise<number> {
    const { log } = this.o;
    if (end.kind === 'stopped') return 0;
    this.gateway++;
    if (end.kind === 'goodbye') {
      log('info', 'the gateway ended the session', { reason: end.reason, why: end.message });
      if (end.reason === 'retired') return this.retired();
      return this.backOff.next(end.pushbackMs);
    }
    const { problem, pushbackMs } = end.refusal;
    log('warn', 'no session', { address, code: problem.code, why: problem.message });
    if (end.welcomed) return this.backOff.next(pushbackMs);
    if (problem.code === 'JOIN_REFUSED') return this.retired();
    // Not in the books, or refused in the handshake, which says no more than that the connection broke.
    const certificate = problem.code === 'UNAUTHENTICATED' || /certificate|alert|handshake/i.test(problem.message);
    if (certificate) return this.rejoin();
    return this.backOff.next(pushbackMs);
  }

  private async retired(): Promise<number> {
    await this.convergence.letGo().catch((e: unknown) => this.o.log('warn', 'could not let go', { why: String(e) }));
    return slowly();
  }

  /** Proves the old key for a new certificate of the same node. Answers how long to wait; 0 when it worked. */
  private async rejoin(): Promise<number> {
    const { stateDirectory, clock, signal, log } = this.o;
    const { joinAddress } = this.identity;
    if (joinAddress === undefined) {
      log('warn', 'the certificate is of no use and no join address is known; run `bcd join`');
      return slowly();
    }
    try {
      const inventory = await this.currentInventory();
      const earlier = this.identity;
      this.identity = await join(
        { stateDirectory, address: joinAddress, trustPem: earlier.trustPem, inventory, clock, signal, patienceMs: 0 },
        { kind: 'proof', earlier },
      );
      log('info', 'joined again by the old key', { nodeId: this.identity.nodeId, notAfter: this.identity.notAfter });
      return 0;
    } catch (e) {
      const p = toProblem(e);
      log('warn', 'could not join again', { code: p.code, why: p.message });
      return p.code === 'JOIN_REFUSED' ? slowly() : this.backOff.next();
    }
  }

  private async currentInventory(): Promise<NodeInventory> {
    return this.inventory.current ?? (await this.inventory.read(this.o.signal));
  }

  private say(report: { generation: number; attemptedGeneration: number; errors: readonly object[] }): void {
    const { generation, attemptedGeneration } = report;
    const errors = report.errors.map((e) => ({ ...e }));
    this.send?.({
      case: 'specObserved',
      value: { generation: BigInt(generation), attemptedGeneration: BigInt(attemptedGeneration), errors },
    });
  }

  /** Sends what the journal holds and what comes, in order, until the session is over. */
  private async sendEvents(over: AbortSignal): Promise<void> {
    const { journal, clock } = this.o;
    while (!over.aborted) {
      const entries = journal.unacknowledged(EVENTS_AT_ONCE, this.eventsSent);
      for (const entry of entries) {
        this.eventsSent = entry.n;
        if (entry.kind !== 'event') continue;
        const { type, at, data } = entry.body as { type?: string; at?: string; data?: Json };
        this.send?.({
          case: 'event',
          value: {
            number: BigInt(entry.n),
            type: type ?? 'unknown',
            at: at ?? '',
            json: new TextEncoder().encode(JSON.stringify(data ?? null)),
          },
        });
      }
      if (entries.length < EVENTS_AT_ONCE) await clock.sleep(1_000, over).catch(() => {});
    }
  }

  private learnGateways(gateways: readonly string[]): void {
    const same =
      gateways.length === this.identity.gateways.length && gateways.every((g) => this.identity.gateways.includes(g));
    if (gateways.length === 0 || same) return;
    this.identity = { ...this.identity, gateways: [...gateways] };
    void saveIdentity(this.o.stateDirectory, this.identity).catch((e: unknown) => {
      this.o.log('warn', 'the identity could not be saved', { why: String(e) });
    });
  }
}

function slowly(): number {
  return REFUSED_MS.floor + Math.round(Math.random() * REFUSED_MS.spread);
}
