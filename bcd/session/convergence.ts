/**
 * Makes the machine what its NodeSpec says, section by section in the fixed order, whether or not a session stands. The
 * newest document wins; a pass that failed is tried again with back-off. A generation is observed once a pass went
 * through every section: then nothing is in place any more that the document does not name. A booked device that cannot
 * be exposed (it is lost) is reported and does not hold that back, since others wait for what was let go.
 */
import { z } from 'zod';
import type { NodeInventory } from '#core/inventory/index.ts';
import { canonicalJson, type Json, sha256Hex } from '#core/kernel/canonical-json.ts';
import type { Clock } from '#core/kernel/time.ts';
import { NodeSpec, SPEC_SECTIONS } from '#core/nodes/spec.ts';
import { convergeCdi } from '../convergers/cdi.ts';
import type { Hands } from '../hands/hands.ts';
import type { Journal } from '../journal/journal.ts';
import { BackOff } from './back-off.ts';

export interface SpecFailure {
  readonly section: string;
  readonly reason: string;
  readonly message: string;
}

export interface SpecReport {
  readonly generation: number;
  readonly attemptedGeneration: number;
  readonly errors: readonly SpecFailure[];
}

export interface ConvergenceOptions {
  readonly hands: Hands;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly inventory: () => Promise<NodeInventory>;
  readonly onReport: (report: SpecReport) => void;
  readonly onError: (e: unknown) => void;
}

interface Desired {
  readonly generation: number;
  readonly canonical: string;
}

type Section = (typeof SPEC_SECTIONS)[number];
type Converger = (spec: NodeSpec, o: ConvergenceOptions) => Promise<SpecFailure[]>;

/** Sections without a row have nothing to converge in this version. */
const CONVERGERS: { readonly [S in Section]?: Converger } = {
  devices: async (spec, { hands, inventory }) => {
    const { sections } = await inventory();
    const { problems } = await convergeCdi(hands.cdi, spec.devices.allocations, sections);
    return problems.map((p) => ({
      section: 'devices',
      reason: 'DeviceUnavailable',
      message: `allocation ${p.allocationId}: ${p.stableId}: ${p.why}`,
    }));
  },
};

const SPEC_KEY = 'spec';
const OBSERVED_KEY = 'observed';
const Remembered = z.object({ generation: z.number(), canonical: z.string() });

export class Convergence {
  private desired: Desired | undefined;
  private observed: number;
  private last: SpecReport | undefined;
  private running = false;
  private again = false;
  private readonly backOff = new BackOff(60_000);
  private retry = new AbortController();
  private readonly options: ConvergenceOptions;

  constructor(options: ConvergenceOptions) {
    this.options = options;
    const known = Remembered.safeParse(options.journal.recall(SPEC_KEY));
    this.desired = known.success ? known.data : undefined;
    this.observed = this.desired === undefined ? 0 : Number(options.journal.recall(OBSERVED_KEY) ?? 0);
  }

  get observedGeneration(): number {
    return this.observed;
  }
  get report(): SpecReport | undefined {
    return this.last;
  }

  /** Takes a delivered document. A generation at or below the known one is a repetition. */
  async deliver(generation: number, bytes: Uint8Array, sha256: string): Promise<void> {
    if (generation <= (this.desired?.generation ?? 0)) {
      if (this.last !== undefined) this.options.onReport(this.last);
      return;
    }
    const canonical = new TextDecoder().decode(bytes);
    if (sha256Hex(canonical) !== sha256) {
      this.say({
        generation: this.observed,
        attemptedGeneration: generation,
        errors: [
          { section: 'spec', reason: 'HashMismatch', message: 'the document is not the one that its hash names' },
        ],
      });
      return;
    }
    this.desired = { generation, canonical };
    this.options.journal.remember(SPEC_KEY, { generation, canonical });
    this.kick();
  }

  /** The hardware changed, or it is time to look: converges the same document again. */
  kick(): void {
    this.again = true;
    this.retry.abort();
    void this.work();
  }

  /** The node is retired: nothing is held any more. */
  async letGo(): Promise<void> {
    const inventory = await this.options.inventory();
    await convergeCdi(this.options.hands.cdi, [], inventory.sections);
    this.desired = undefined;
    this.options.journal.remember(SPEC_KEY, null);
  }

  stop(): void {
    this.desired = undefined;
    this.retry.abort();
  }

  private async work(): Promise<void> {
    if (this.running) return;
    this.running = true;
    const { clock } = this.options;
    while (this.again && this.desired !== undefined) {
      this.again = false;
      const settled = await this.pass(this.desired);
      if (settled) {
        this.backOff.succeeded();
        continue;
      }
      this.retry = new AbortController();
      if (!this.again) await clock.sleep(this.backOff.next(), this.retry.signal).catch(() => {});
      this.again = true;
    }
    this.running = false;
  }

  /** One pass over all sections. False when it is to be tried again. */
  private async pass({ generation, canonical }: Desired): Promise<boolean> {
    const errors: SpecFailure[] = [];
    let whole = true;
    const spec = readSpec(canonical);
    if (typeof spec === 'string') {
      whole = false;
      errors.push({ section: 'spec', reason: 'Unreadable', message: spec });
    } else {
      for (const section of SPEC_SECTIONS) {
        try {
          errors.push(...((await CONVERGERS[section]?.(spec, this.options)) ?? []));
        } catch (e) {
          // Later sections may rest on this one.
          whole = false;
          errors.push({ section, reason: 'Failed', message: e instanceof Error ? e.message : String(e) });
          this.options.onError(e);
          break;
        }
      }
    }
    if (whole && generation > this.observed) {
      this.observed = generation;
      this.options.journal.remember(OBSERVED_KEY, generation);
    }
    this.say({ generation: this.observed, attemptedGeneration: generation, errors });
    return whole;
  }

  /** The same report is said once a session; reconnecting says it again. */
  private say(report: SpecReport): void {
    const same =
      this.last !== undefined &&
      canonicalJson(this.last as unknown as Json) === canonicalJson(report as unknown as Json);
    this.last = report;
    if (!same) this.options.onReport(report);
  }
}

function readSpec(canonical: string): NodeSpec | string {
  try {
    const result = NodeSpec.safeParse(JSON.parse(canonical));
    if (result.success) return result.data;
    const issue = result.error.issues[0]!;
    return `${issue.path.map(String).join('.')}: ${issue.message}`;
  } catch (e) {
    return e instanceof Error ? e.message : String(e);
  }
}
