/**
 * Seeded randomness. A tree of generators: each consumer forks one by name, so that one more consumer does not shift
 * what the others draw. For simulators and spread; never for secrets.
 */
export interface Random {
  /** In [0, 1). */
  next(): number;
  /** Whole, in [from, to]. */
  int(from: number, to: number): number;
  pick<T>(items: readonly T[]): T;
  chance(p: number): boolean;
  fork(name: string): Random;
}

/** FNV-1a, 32 bit. */
function hash(text: string, seed: number): number {
  let h = seed ^ 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

export function seededRandom(seed: number | string): Random {
  const root = typeof seed === 'number' ? seed >>> 0 : hash(seed, 0);
  let state = root;
  // Mulberry32.
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
  const int = (from: number, to: number) => from + Math.floor(next() * (to - from + 1));
  return {
    next,
    int,
    pick: (items) => items[int(0, items.length - 1)]!,
    chance: (p) => next() < p,
    fork: (name) => seededRandom(hash(name, root)),
  };
}
