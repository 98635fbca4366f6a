/**
 * How long node certificates live and when they are renewed. Short lives stand in for revocation lists: whoever stole a
 * key has it for a day at most, and the gateway asks the database about revocation when a session opens.
 */
import type { Instant } from '../kernel/time.ts';
import { fromMillis, toMillis } from '../kernel/time.ts';

export const NODE_ROLES = ['node', 'site', 'ramdisk', 'node-tenant'] as const;
export type NodeRole = (typeof NODE_ROLES)[number];

export function isNodeRole(text: unknown): text is NodeRole {
  return NODE_ROLES.includes(text as NodeRole);
}

const HOUR = 3600;
/** From `notBefore` to `notAfter`, the back-dating included. */
export const LIFETIME_SECONDS: Readonly<Record<NodeRole, number>> = {
  node: 24 * HOUR,
  site: 24 * HOUR,
  ramdisk: 2 * HOUR,
  'node-tenant': 24 * HOUR,
};

/** A machine's clock may be behind ours; without this it would refuse its own new certificate. */
export const BACKDATE_SECONDS = 300;

/** An expired certificate still names a key that may prove itself anew for so long; afterwards a join token is needed. */
export const REJOIN_WINDOW_SECONDS = 30 * 24 * HOUR;

/** The same key asking again with the same token inside this time gets the same admission. */
export const SAME_ADMISSION_SECONDS = 600;

export interface Validity {
  readonly notBefore: Instant;
  readonly notAfter: Instant;
}

/** After a jump of the clock it is not known which time is right: a certificate covers both, if they are this close. */
const DOUBT_SECONDS_MAX = 7 * 24 * HOUR;

/** What the clock says, and what deadlines go by: the same, but for the time after a jump. */
export interface ClockReading {
  readonly now: Instant;
  readonly steady: Instant;
}

/** X.509 times have whole seconds. Never outlives the authority that signs. */
export function validityOf(role: NodeRole, clock: ClockReading, authorityEnds: Instant): Validity {
  const [now, steady] = [clock.now, clock.steady].map((at) => Math.floor(toMillis(at) / 1000) * 1000) as [
    number,
    number,
  ];
  const backdate = BACKDATE_SECONDS * 1000;
  const start = steady - backdate;
  const latest = Math.min(now, steady + DOUBT_SECONDS_MAX * 1000) - backdate;
  const end = Math.min(latest + LIFETIME_SECONDS[role] * 1000, toMillis(authorityEnds));
  return { notBefore: fromMillis(start), notAfter: fromMillis(end) };
}

/** When a certificate is to be renewed: at two thirds of its life. */
export function renewAt(validity: Validity): Instant {
  const [start, end] = [toMillis(validity.notBefore), toMillis(validity.notAfter)];
  return fromMillis(start + Math.floor(((end - start) * 2) / 3));
}
