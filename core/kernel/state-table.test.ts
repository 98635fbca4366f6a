import { describe, expect, test } from 'vitest';
import { STATE_TABLES } from '../states.ts';
import { allowedEvents, isFinal, next } from './state-table.ts';

describe.each(STATE_TABLES.map((t) => [t.name, t] as const))('state table %s', (_name, t) => {
  const states = Object.keys(t.states);
  const events = [...new Set(t.moves.map((m) => m.on))];

  test('every state is reachable from the initial one', () => {
    const seen = new Set([t.initial]);
    for (let grew = true; grew; ) {
      grew = false;
      for (const m of t.moves) {
        if (m.from.some((f) => seen.has(f)) && !seen.has(m.to)) {
          seen.add(m.to);
          grew = true;
        }
      }
    }
    expect([...seen].sort()).toEqual([...states].sort());
  });

  test('no event is ambiguous in a state, and a final state allows none', () => {
    for (const s of states) {
      const allowed = allowedEvents(t, s);
      expect(new Set(allowed).size).toBe(allowed.length);
      if (isFinal(t, s)) expect(allowed).toEqual([]);
      for (const e of events) expect(next(t, s, e) !== undefined).toBe(allowed.includes(e));
    }
  });

  test('a state that is not settled has an owner and a deadline', () => {
    for (const s of Object.values(t.states)) {
      if (s.settled) continue;
      expect(s.owner).toBeTruthy();
      expect(s.deadlineSeconds).toBeGreaterThan(0);
    }
  });
});
