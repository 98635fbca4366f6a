import { expect, test } from 'vitest';
import { ATTEMPTS_MAX, retryDelaySeconds } from './schedule.ts';

test('ten attempts over about three days, never shorter than the one before, then none', () => {
  for (const roll of [0, 0.5, 0.999]) {
    let total = 0;
    let before = 0;
    for (let attempt = 1; attempt < ATTEMPTS_MAX; attempt++) {
      const delay = retryDelaySeconds(attempt, roll)!;
      expect(delay).toBeGreaterThanOrEqual(before);
      before = delay;
      total += delay;
    }
    expect(total / 86_400).toBeGreaterThan(2.8);
    expect(total / 86_400).toBeLessThan(3.6);
  }
  expect(retryDelaySeconds(ATTEMPTS_MAX, 0.5)).toBeUndefined();
});

test('a longer wait that the endpoint asks for is honoured, up to a day', () => {
  expect(retryDelaySeconds(1, 0.5, 120)).toBe(120);
  expect(retryDelaySeconds(1, 0.5, 999_999)).toBe(86_400);
  expect(retryDelaySeconds(4, 0.5, 1)).toBe(7200);
});
