/**
 * What one run of a reconciler found. The engine stores reason and recheck time, so that `explain` can show them.
 * A throw means back off and try again.
 */
import type { Instant } from './time.ts';

export type Outcome =
  /** Not there yet; look again at `recheckAt` at the latest. `reason` is read by people at 3 a.m. */
  | { readonly kind: 'wait'; readonly reason: string; readonly recheckAt: Instant }
  /** Did something; look again at once. */
  | { readonly kind: 'again'; readonly did: string }
  /** Nothing to do until something wakes the key. */
  | { readonly kind: 'settled' }
  /** The object is no more. */
  | { readonly kind: 'gone' };

export const wait = (reason: string, recheckAt: Instant): Outcome => ({ kind: 'wait', reason, recheckAt });
export const again = (did: string): Outcome => ({ kind: 'again', did });
export const settled: Outcome = { kind: 'settled' };
export const gone: Outcome = { kind: 'gone' };
