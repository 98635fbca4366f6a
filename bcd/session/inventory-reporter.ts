/**
 * Reads the hardware now and then and tells what changed. Which sections the control plane holds is known from the last
 * Welcome and its acknowledgements; only sections whose hash differs travel, together where they fit a frame.
 */
import { changedSections, type NodeInventory, type SectionHashes } from '#core/inventory/index.ts';
import { canonicalJson, type Json } from '#core/kernel/canonical-json.ts';
import type { Clock } from '#core/kernel/time.ts';
import type { InventorySection } from '#proto/gen/bettercompute/v1/session_pb.js';
import type { Hands } from '../hands/hands.ts';

export type SectionInit = Pick<InventorySection, 'name' | 'hash' | 'json'>;

export interface ReporterOptions {
  readonly hands: Hands;
  readonly clock: Clock;
  readonly everyMs: number;
  readonly onReading: (inventory: NodeInventory) => void;
  readonly onError: (e: unknown) => void;
}

/** Well under the bound of a frame; a single section never comes near it. */
const FRAME_BYTES = 1024 * 1024;

export class InventoryReporter {
  private inventory: NodeInventory | undefined;
  private acknowledged: Record<string, string> = {};
  private send: ((sections: SectionInit[]) => void) | undefined;
  private heldUntilMs = 0;
  /** Hashes on their way, so that a second look does not send them twice. */
  private underway: Record<string, string> = {};
  private readonly options: ReporterOptions;

  constructor(options: ReporterOptions) {
    this.options = options;
  }

  get current(): NodeInventory | undefined {
    return this.inventory;
  }
  get hashes(): Readonly<Record<string, string>> {
    return this.acknowledged;
  }

  /** Reads at once and then periodically, until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, everyMs, onError } = this.options;
    while (!signal.aborted) {
      await this.read(signal).catch(onError);
      // Spread, so that a fleet that booted together does not report together for ever.
      await clock.sleep(everyMs * (0.75 + Math.random() / 2), signal).catch(() => {});
    }
  }

  async read(signal?: AbortSignal): Promise<NodeInventory> {
    this.inventory = await this.options.hands.collectInventory(signal);
    this.options.onReading(this.inventory);
    await this.report();
    return this.inventory;
  }

  /** A session stands; the control plane holds these hashes. */
  async opened(stored: Readonly<Record<string, string>>, send: (sections: SectionInit[]) => void): Promise<void> {
    this.acknowledged = { ...stored };
    this.underway = {};
    this.heldUntilMs = 0;
    this.send = send;
    await this.report();
  }
  closed(): void {
    this.send = undefined;
    this.underway = {};
  }

  stored(hashes: Readonly<Record<string, string>>): void {
    for (const [name, hash] of Object.entries(hashes)) {
      this.acknowledged[name] = hash;
      delete this.underway[name];
    }
  }

  /** The control plane wants these again; all when none is named. */
  async asked(names: readonly string[]): Promise<void> {
    for (const name of names.length === 0 ? Object.keys(this.acknowledged) : names) delete this.acknowledged[name];
    this.underway = {};
    await this.report();
  }

  /** What was sent was not taken; not before so long again. */
  hold(ms: number): void {
    this.heldUntilMs = this.options.clock.now() + ms;
    this.underway = {};
  }

  private async report(): Promise<void> {
    const { inventory, send } = this;
    if (inventory === undefined || send === undefined || this.options.clock.now() < this.heldUntilMs) return;
    const known = { ...this.acknowledged, ...this.underway } as SectionHashes;
    let batch: SectionInit[] = [];
    let size = 0;
    const flush = () => {
      if (batch.length > 0) send(batch);
      [batch, size] = [[], 0];
    };
    for (const { name, hash, data } of await changedSections(inventory, known)) {
      if (this.send !== send) return;
      this.underway[name] = hash;
      const json = new TextEncoder().encode(canonicalJson(data as unknown as Json));
      if (size + json.length > FRAME_BYTES) flush();
      batch.push({ name, hash, json });
      size += json.length;
    }
    flush();
  }
}
