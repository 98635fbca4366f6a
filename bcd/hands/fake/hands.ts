/**
 * A machine that exists only here, with switches for what goes wrong on real ones. The CDI directory is in memory or,
 * for looking at the files, a real one.
 */
import type { GpusSection, NodeInventory } from '#core/inventory/inventory.ts';
import { type Clock, fromMillis } from '#core/kernel/time.ts';
import { cdiDirectory, memoryCdiDirectory } from '../cdi-directory.ts';
import type { CdiDirectory, Hands } from '../hands.ts';
import { DEFAULT_SHAPE, type FakeShape, fakeInventory } from './machine.ts';

/** Each may be switched at any time; the next reading shows it. */
export interface FakeFaults {
  /** Indexes of GPUs that the driver lost: identity stands, figures are gone. */
  lostGpus: Set<number>;
  /** Indexes of GPUs that are off the bus: not listed at all. */
  missingGpus: Set<number>;
  /** The vendor's tool fails: the gpus section says nothing. */
  staleInventory: boolean;
  /** Milliseconds that an inventory takes. */
  slowMs: number;
  /** Writing to the CDI directory fails. */
  readOnlyCdi: boolean;
  /** Read by whoever opens this machine's journal: it starts with an empty one. */
  lostJournal: boolean;
}

export interface FakeHandsOptions extends Partial<Omit<FakeShape, 'number'>> {
  readonly number: number;
  readonly clock: Clock;
  /** A real directory for the CDI files. */
  readonly cdiDirectory?: string;
}

export class FakeHands implements Hands {
  readonly kind = 'fake';
  readonly cdi: CdiDirectory;
  readonly shape: FakeShape;
  readonly faults: FakeFaults = {
    lostGpus: new Set(),
    missingGpus: new Set(),
    staleInventory: false,
    slowMs: 0,
    readOnlyCdi: false,
    lostJournal: false,
  };
  private boots = 0;
  private readonly clock: Clock;
  private readonly xids: GpusSection['xids'] = [];

  constructor(options: FakeHandsOptions) {
    const { number, clock, cdiDirectory: location, ...shape } = options;
    this.clock = clock;
    this.shape = { ...DEFAULT_SHAPE, ...shape, number };
    const directory = location === undefined ? memoryCdiDirectory(`memory:${number}`) : cdiDirectory(location);
    const writable = () => {
      if (this.faults.readOnlyCdi) throw Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS' });
    };
    this.cdi = {
      location: directory.location,
      list: () => directory.list(),
      write: async (name, text) => {
        writable();
        await directory.write(name, text);
      },
      remove: async (name) => {
        writable();
        await directory.remove(name);
      },
    };
  }

  async collectInventory(signal?: AbortSignal): Promise<NodeInventory> {
    signal?.throwIfAborted();
    if (this.faults.slowMs > 0) await this.clock.sleep(this.faults.slowMs, signal);
    const { version, sections } = fakeInventory(this.shape, await this.bootId());
    return { version, sections: { ...sections, gpus: this.gpus(sections.gpus) } };
  }

  async bootId(): Promise<string> {
    return `fa4e0000-0000-4000-8000-${this.shape.number.toString(16).padStart(6, '0')}${this.boots.toString(16).padStart(6, '0')}`;
  }

  async hostname(): Promise<string> {
    return `fake-${this.shape.number.toString(16).padStart(4, '0')}`;
  }

  /** Comes back at once under another boot id; what the driver logged is gone. */
  async reboot(): Promise<void> {
    this.boots++;
    this.xids.length = 0;
  }

  /** The driver logs an error for a GPU. */
  raiseXid(gpuIndex: number, code: number): void {
    this.xids.push({
      id: `${this.shape.number}:${this.boots}:${this.xids.length}`,
      pciAddress: `0000:${(0x10 + gpuIndex).toString(16)}:00.0`,
      code,
      at: fromMillis(this.clock.now()),
    });
    if (this.xids.length > 64) this.xids.shift();
  }

  private gpus(healthy: GpusSection): GpusSection {
    const { faults } = this;
    if (faults.staleInventory) {
      return { status: 'failed', problems: ['nvidia-smi exited with 9'], gpus: [], links: [], xids: [] };
    }
    const listed = healthy.gpus.filter((g) => !faults.missingGpus.has(g.index));
    const gpus = listed.map((g) => {
      if (!faults.lostGpus.has(g.index)) return g;
      const { memoryBytes: _, ...identity } = g;
      return { ...identity, lost: true };
    });
    const problems = gpus.filter((g) => g.lost).map((g) => `GPU ${g.uuid} is lost`);
    return {
      ...healthy,
      status: problems.length === 0 ? 'ok' : 'partial',
      problems,
      attached: listed.length,
      gpus,
      xids: [...this.xids],
    };
  }
}
