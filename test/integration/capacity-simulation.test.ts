/** The simulation of `npm run sim -- capacity`, short: one seed twice, and faults that it must not miss. */
import { expect, test } from 'vitest';
import { capacity } from '#tools/sim/capacity.ts';
import type { World } from '#tools/sim/world.ts';

const SHORT = { seed: 11, hours: 2, nodes: 6, tenants: 4 };

test('two simulated hours are clean, and the same seed takes the same course', async () => {
  const [run, again] = [await capacity(SHORT), await capacity(SHORT)];
  expect(run).toMatchObject({ ok: true, errors: [], held: 0 });
  expect(again['trace']).toBe(run['trace']);
  expect(await capacity({ ...SHORT, seed: 12, hours: 0.2 })).not.toMatchObject({ trace: run['trace'] });
});

const once = (at: number, text: string) => async (world: World, step: number) => {
  if (step === at) await world.system.query(text);
};

/** What goes wrong in the books at some step, and what the simulation must say. */
const FAULTS: readonly [string, (world: World, step: number) => Promise<void>, RegExp][] = [
  [
    'a booking is made twice',
    once(
      8,
      `with off as (select 1) insert into device_bookings (device_no, allocation_id, during)
       select d.no, a.id, tstzrange(compute_now() + interval '300 days', compute_now() + interval '301 days')
       from devices d, (select id from allocations where released_at is null limit 1) a limit 1`,
    ),
    /no live booking of it|claims of a device/,
  ],
  ['quota leaks', once(8, 'update quotas set used = used + 1 where used > 0'), /quota in use differs/],
  ['quota is forgotten', once(8, 'update quotas set used = used - 1 where used > 0'), /quota in use differs/],
  ['a summary drifts', once(8, 'update node_capacity set free = free - 1 where free > 0'), /capacity summary differs/],
  [
    'a device is let go of too early',
    once(8, 'update devices set allocation_id = null where allocation_id is not null'),
    /held by an allocation/,
  ],
  ['a claim is lost', once(8, 'update devices set claims = 0 where claims > 0'), /claims of a device/],
  ['an event is lost', once(8, `delete from events where type = 'reservation.booked'`), /without its event/],
  [
    'the referee is gone and two have one device',
    async (world, step) => {
      if (step === 5) {
        await world.system.query('alter table device_bookings drop constraint device_bookings_no_overlap');
        await world.system.query(
          `insert into device_bookings (device_no, allocation_id, during)
           select b.device_no, o.id, b.during from device_bookings b
           join allocations o on o.id <> b.allocation_id and o.released_at is null where b.released_at is null limit 1`,
        );
      }
    },
    /live bookings that overlap/,
  ],
  [
    'usage is counted twice',
    async (world) =>
      void (await world.system.query('update usage_windows set device_seconds = device_seconds + 1 where sealed')),
    /metered seconds differ/,
  ],
  [
    'devices outlive their reservation',
    async (world) =>
      void (await world.system.query(
        `update allocations set released_at = null where released_at is not null and id = (select min(id) from allocations)`,
      )),
    /a live allocation of a reservation that is over/,
  ],
];

test.for(FAULTS)('notices that %s', async ([, sabotage, says]) => {
  const run = await capacity({ ...SHORT, hours: 1, sabotage });
  expect(run['ok']).toBe(false);
  expect((run['errors'] as string[]).join('\n')).toMatch(says);
});
