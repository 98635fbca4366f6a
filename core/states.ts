/** Every state machine of the product. The database, the docs and the tests walk this list. */
import type { StateTable } from './kernel/state-table.ts';
import { nodeStates } from './nodes/states.ts';
import { reservationStates } from './reservations/states.ts';
import { deliveryStates } from './webhooks/states.ts';

export const STATE_TABLES: readonly StateTable[] = [nodeStates, reservationStates, deliveryStates];
