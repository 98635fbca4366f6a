/**
 * Challenges without a table: expiry, randomness and a MAC over both. Whoever returns one within its life got it from
 * this deployment. It need not be single-use: a proof over it is bound to one CSR, so repeating it admits the same key.
 */
import { fromBase64, hex, toBase64 } from '#core/join/bytes.ts';
import { type Instant, toMillis } from '#core/kernel/time.ts';
import type { Authority } from './certificate.ts';

const LIFE_MS = 120_000;

async function mac(authority: Authority, body: string): Promise<string> {
  return toBase64(await crypto.subtle.sign('HMAC', authority.challengeKey, new TextEncoder().encode(body)));
}

export async function makeChallenge(authority: Authority, now: Instant): Promise<string> {
  const body = `${toMillis(now) + LIFE_MS}.${hex(crypto.getRandomValues(new Uint8Array(16)))}`;
  return `${body}.${await mac(authority, body)}`;
}

export async function challengeStands(authority: Authority, challenge: string, now: Instant): Promise<boolean> {
  const [, body, expires, given] = /^((\d{1,15})\.[0-9a-f]{32})\.([A-Za-z0-9+/]{43}=)$/.exec(challenge) ?? [];
  if (body === undefined || given === undefined || Number(expires) <= toMillis(now)) return false;
  return crypto.subtle.verify('HMAC', authority.challengeKey, fromBase64(given), new TextEncoder().encode(body));
}
