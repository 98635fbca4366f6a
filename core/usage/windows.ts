/**
 * Usage by the hour: what an allocation held between two instants, cut at the hours, in device-seconds. Pure, so that
 * the sum over any cutting equals the whole.
 */
import { addSeconds, fromMillis, type Instant, toMillis } from '../kernel/time.ts';

const HOUR_MS = 3_600_000;

export interface MeteredHolding {
  /** From when the devices were ready for use. */
  readonly from: Instant;
  /** To when they were given up, or the time of asking. */
  readonly to: Instant;
  /** The allocation is over: nothing will be added. */
  readonly ended: boolean;
  /** Meter -> devices held. */
  readonly devices: Readonly<Record<string, number>>;
}

export interface UsageWindow {
  readonly hour: Instant;
  readonly meter: string;
  readonly deviceSeconds: number;
  /** Final: the hour is over, or the allocation is. */
  readonly sealed: boolean;
}

/** The meter of a device class in a pool: `gpu.h100.hours`, `gpu.h100.spot.hours`, `disk.hours`. */
export function meterOf(deviceClass: string, gpuModel: string | undefined, spot = false): string {
  const model = gpuModel?.toLowerCase().replaceAll(/[^a-z0-9_.-]/g, '-');
  const what = deviceClass === 'gpu' && model !== undefined ? `gpu.${model}` : deviceClass;
  return `${what}${spot ? '.spot' : ''}.hours`;
}

/** Whole seconds between two instants, cut by truncating both to the second: windows then add up exactly. */
const second = (ms: number) => Math.floor(ms / 1000);

export function usageWindows(h: MeteredHolding): UsageWindow[] {
  const [from, to] = [toMillis(h.from), toMillis(h.to)];
  const windows: UsageWindow[] = [];
  for (let hour = Math.floor(from / HOUR_MS) * HOUR_MS; hour < to; hour += HOUR_MS) {
    const seconds = second(Math.min(to, hour + HOUR_MS)) - second(Math.max(from, hour));
    const sealed = h.ended || to >= hour + HOUR_MS;
    for (const [meter, devices] of Object.entries(h.devices)) {
      windows.push({ hour: fromMillis(hour), meter, deviceSeconds: seconds * devices, sealed });
    }
  }
  return windows;
}

const READING_SECONDS_MIN = 5;
const READING_SECONDS_MAX = 300;

/**
 * When a holding that goes on is to be read next: after as long again as it has lasted, 5 s to 5 minutes. A tenant who
 * looks at a short job sees it, and a long one costs little.
 */
export function nextReading(from: Instant, now: Instant): Instant {
  const held = (toMillis(now) - toMillis(from)) / 1000;
  return addSeconds(now, Math.round(Math.min(READING_SECONDS_MAX, Math.max(READING_SECONDS_MIN, held))));
}
