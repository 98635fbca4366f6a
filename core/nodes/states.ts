/** Provision state of a node: one axis of several. Cordon, maintenance, connectivity and conditions are others. */
import { stateTable } from '../kernel/state-table.ts';

export const nodeStates = stateTable(
  'node',
  'nodes',
  'adopting',
  {
    adopting: {
      doc: 'Joined with its operating system; its inventory is being read and its first spec converged.',
      owner: 'nodes.health',
      deadlineSeconds: 900,
    },
    ready: { doc: 'Converged at least once. Takes work when no other axis forbids it.', settled: true },
    retired: { doc: 'Gone for good. Holds nothing; its certificate is refused.', settled: true, final: true },
  },
  [
    {
      on: 'adopt',
      from: ['adopting'],
      to: 'ready',
      by: ['nodes.health'],
      doc: 'Inventory read and generation 1 observed.',
    },
    {
      on: 'retire',
      from: ['adopting', 'ready'],
      to: 'retired',
      by: ['api'],
      doc: 'An operator takes the machine out for good.',
    },
  ],
);
