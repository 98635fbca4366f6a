/** The simulation of `npm run sim -- bookings`, short: clients fight over a small fleet and the books stay right. */
import { expect, test } from 'vitest';
import { bookings } from '#tools/sim/bookings.ts';

test.for(['product', 'random'] as const)('many clients over few machines, placed by the %s placer', async (placer) => {
  const run = await bookings({ seed: 7, clients: 40, requests: 400, nodes: 8, placer });
  expect(run).toMatchObject({ ok: true, errors: [], held: 0, deadlocks: 0 });
  expect(run['admitted']).toBeGreaterThan(0);
  expect(run['refused']).toHaveProperty('CAPACITY_UNAVAILABLE');
});
