/** Webhooks: the only door to this folder. */
export {
  type AttemptEnd,
  attemptDelivery,
  type ClaimedDelivery,
  claimDelivery,
  type DeliveryContext,
  type DueDelivery,
  nextDueMs,
  recordAttempt,
  requestOf,
  takeDue,
} from './deliver.ts';
export { handlers } from './verbs.ts';
