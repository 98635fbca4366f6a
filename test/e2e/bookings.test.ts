/** 200 clients and 10,000 reservations over 64 machines, with the product's placer and with one that answers at random. */
import { expect, test } from 'vitest';
import { bookings } from '#tools/sim/bookings.ts';

test.for(['product', 'random'] as const)('placed by the %s placer', { timeout: 900_000 }, async (placer) => {
  const run = await bookings({ seed: 1, clients: 200, requests: 10_000, nodes: 64, placer });
  expect(run).toMatchObject({ ok: true, errors: [], held: 0, deadlocks: 0 });
});
