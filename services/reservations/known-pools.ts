/**
 * What IAM decides on of a pool, as the last admission of the same caller in it saw it. It lets the next one be decided
 * ahead of its draft, which saves a round trip; the database compares, so that what is stale here decides nothing.
 */
import type { Database } from '#core/kernel/database.ts';

export type PoolFacts = Readonly<Record<string, string | number | boolean>>;

const KEPT_MAX = 1_000;
/** By handle, so that one process can serve several databases. */
const known = new WeakMap<Database, Map<string, PoolFacts>>();

export interface KnownPool {
  readonly facts: PoolFacts | undefined;
  keep(facts: PoolFacts): void;
  forget(): void;
}

export function knownPool(db: Database, tenantId: string, identityId: string, poolId: string): KnownPool {
  const kept = known.get(db) ?? new Map<string, PoolFacts>();
  known.set(db, kept);
  const key = `${tenantId}/${identityId}/${poolId}`;
  return {
    facts: kept.get(key),
    keep(facts) {
      if (kept.size >= KEPT_MAX) kept.delete(kept.keys().next().value!);
      kept.set(key, facts);
    },
    forget: () => void kept.delete(key),
  };
}
