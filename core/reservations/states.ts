/** The life of a reservation on one screen. */
import { stateTable } from '../kernel/state-table.ts';

export const reservationStates = stateTable(
  'reservation',
  'reservations',
  'draft',
  {
    draft: {
      doc: 'Written, not yet admitted: the policy may refuse it, or nothing may be free. Holds nothing.',
      owner: 'reservations',
      deadlineSeconds: 2 * 86_400,
    },
    scheduled: {
      doc: 'The devices are booked for a window that has not begun. Nothing is held, nobody else can book them for it.',
      settled: true,
    },
    booked: {
      doc: 'The devices are its own. The machines are being told.',
      owner: 'reservations',
      deadlineSeconds: 600,
    },
    active: { doc: 'Every machine confirmed that the devices are ready for use. Metered.', settled: true },
    releasing: {
      doc: 'Over. The devices stay booked until every machine confirmed that it let go, or was fenced.',
      owner: 'reservations',
      deadlineSeconds: 600,
    },
    released: { doc: 'Over, and everything is free again.', settled: true, final: true },
    abandoned: { doc: 'The draft was never admitted and is dropped.', settled: true, final: true },
  },
  [
    { on: 'admit', from: ['draft'], to: 'booked', by: ['api'], doc: 'The policy allowed it and devices were free.' },
    {
      on: 'schedule',
      from: ['draft'],
      to: 'scheduled',
      by: ['api'],
      doc: 'The policy allowed it and devices were free for the window.',
    },
    {
      on: 'begin',
      from: ['scheduled'],
      to: 'booked',
      by: ['reservations'],
      doc: 'The window began and every device passed into its hands.',
    },
    {
      on: 'cancel',
      from: ['scheduled'],
      to: 'released',
      by: ['api', 'reservations'],
      doc: 'Given up before it held anything, or its window passed first.',
    },
    {
      on: 'abandon',
      from: ['draft'],
      to: 'abandoned',
      by: ['api', 'reservations'],
      doc: 'Released before it held anything, or a day old.',
    },
    {
      on: 'activate',
      from: ['booked'],
      to: 'active',
      by: ['reservations'],
      doc: 'Every machine observed the generation that holds it.',
    },
    {
      on: 'release',
      from: ['booked', 'active'],
      to: 'releasing',
      by: ['api', 'reservations'],
      doc: 'Asked for, its time is over, or its lease lapsed.',
    },
    {
      on: 'settle',
      from: ['releasing'],
      to: 'released',
      by: ['reservations'],
      doc: 'Every machine let go or was fenced.',
    },
  ],
);

export type ReservationState = keyof typeof reservationStates.states;
