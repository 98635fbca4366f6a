import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ObservedAllocation, type ObservedReservation, planReservation } from './plan.ts';
import type { ReservationState } from './states.ts';

const NOW = '2026-12-01T12:00:00.000Z';
const allocation = (over: Partial<ObservedAllocation> = {}): ObservedAllocation => ({
  allocationId: 'alc_1',
  nodeId: 'node_1',
  nodeName: 'gpu-01',
  specGeneration: 7,
  observedGeneration: 7,
  connectivity: 'connected',
  fenced: false,
  released: false,
  held: true,
  ailing: [],
  ...over,
});
const reservation = (state: ReservationState, over: Partial<ObservedReservation> = {}): ObservedReservation => ({
  state,
  createdAt: '2026-12-01T11:00:00.000Z',
  endsAt: '2026-12-01T13:00:00.000Z',
  allocations: [allocation()],
  ...over,
});

describe('the next step of a reservation', () => {
  test('booked becomes active once the machine confirmed', () => {
    expect(planReservation(reservation('booked'), NOW)).toEqual({ do: 'activate' });
  });
  test('booked says which node it waits for, and that it is unreachable', () => {
    const step = planReservation(
      reservation('booked', { allocations: [allocation({ observedGeneration: 6, connectivity: 'unreachable' })] }),
      NOW,
    );
    expect(step).toMatchObject({
      do: 'wait',
      reason: 'node gpu-01 has observed generation 6 of 7 and has not confirmed the devices; it is unreachable',
    });
  });
  test('the end counts at its instant, the lease before it when it lapses first', () => {
    expect(planReservation(reservation('active', { endsAt: NOW }), NOW)).toEqual({ do: 'release', reason: 'expired' });
    expect(planReservation(reservation('active', { leaseExpiresAt: NOW }), NOW)).toEqual({
      do: 'release',
      reason: 'lease-lapsed',
    });
    expect(planReservation(reservation('active', { leaseExpiresAt: '2026-12-01T12:30:00.000Z' }), NOW)).toMatchObject({
      do: 'wait',
      recheckAt: '2026-12-01T12:30:00.000Z',
    });
  });
  test('releasing frees nothing before the machine let go, and says so', () => {
    const held = allocation({ releaseGeneration: 9, observedGeneration: 8 });
    expect(planReservation(reservation('releasing', { allocations: [held] }), NOW)).toMatchObject({ do: 'wait' });
    expect(
      planReservation(reservation('releasing', { allocations: [{ ...held, observedGeneration: 9 }] }), NOW),
    ).toMatchObject({
      do: 'settle',
      done: true,
    });
    expect(planReservation(reservation('releasing', { allocations: [{ ...held, fenced: true }] }), NOW)).toMatchObject({
      do: 'settle',
      reason: 'fenced',
    });
  });
});

test('safety: an atom is freed only when its machine let go or was fenced; liveness: every unsettled state acts or says why', () => {
  const arbitrary = fc.record({
    specGeneration: fc.option(fc.nat(5), { nil: undefined }),
    releaseGeneration: fc.option(fc.nat(5), { nil: undefined }),
    observedGeneration: fc.nat(5),
    fenced: fc.boolean(),
    released: fc.boolean(),
    connectivity: fc.constantFrom('connected', 'unreachable', 'never'),
  });
  const states = fc.constantFrom<ReservationState>('draft', 'booked', 'active', 'releasing', 'released', 'abandoned');
  fc.assert(
    fc.property(
      states,
      fc.array(arbitrary, { maxLength: 4 }),
      fc.integer({ min: -7200, max: 7200 }),
      (state, shapes, offset) => {
        const allocations = shapes.map((s, i) => allocation({ ...s, allocationId: `alc_${i}` }));
        const endsAt = new Date(Date.parse(NOW) + offset * 1000).toISOString();
        const step = planReservation(reservation(state, { allocations, endsAt }), NOW);
        if (step.do === 'nothing') expect(['released', 'abandoned']).toContain(state);
        if (step.do === 'wait') expect(step.reason.length).toBeGreaterThan(10);
        if (step.do === 'settle') {
          for (const id of step.allocationIds) {
            const a = allocations.find((x) => x.allocationId === id)!;
            expect(a.fenced || (a.releaseGeneration !== undefined && a.observedGeneration >= a.releaseGeneration)).toBe(
              true,
            );
          }
          if (step.done)
            expect(allocations.every((a) => a.released || step.allocationIds.includes(a.allocationId))).toBe(true);
        }
        if (offset <= 0 && (state === 'booked' || state === 'active'))
          expect(step).toEqual({ do: 'release', reason: 'expired' });
      },
    ),
  );
});
