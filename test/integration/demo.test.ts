/** The main job, from a fresh control plane to the end, as `npm run demo` does it. */
import { expect, test } from 'vitest';
import { runDemo } from '#kit/demo.ts';

test('joins this machine and sixteen others, reserves, meters, tells, refuses, releases, stops', async () => {
  const { code, result, output } = await runDemo();
  expect(result, output).toMatchObject({ ok: true, machines: 17, reservations: 2, refusals: 2 });
  expect(result['webhooks']).toBe(result['events']);
  expect(code).toBe(0);
}, 180_000);
