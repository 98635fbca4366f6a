/** The life of one webhook delivery. */
import { stateTable } from '../kernel/state-table.ts';

export const deliveryStates = stateTable(
  'delivery',
  'webhook_deliveries',
  'pending',
  {
    pending: { doc: 'Waits for its next attempt.', owner: 'webhooks', deadlineSeconds: 4 * 86_400 },
    delivered: { doc: 'The endpoint answered 2xx.', settled: true },
    dead: { doc: 'Every attempt failed, or the webhook was disabled. Can be sent again by hand.', settled: true },
  },
  [
    { on: 'deliver', from: ['pending'], to: 'delivered', by: ['webhooks'], doc: 'The endpoint answered 2xx.' },
    { on: 'give-up', from: ['pending'], to: 'dead', by: ['webhooks'], doc: 'The last attempt of the schedule failed.' },
    {
      on: 'redeliver',
      from: ['delivered', 'dead', 'pending'],
      to: 'pending',
      by: ['api'],
      doc: 'Somebody asked to send it again.',
    },
  ],
);
