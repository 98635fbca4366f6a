/** Every reconciler of the product. The Shard object, the Node host and the simulator run this list. */
import { housekeeping } from './housekeeping/controller.ts';
import { deadGateways, nodeHealth } from './nodes/health-controller.ts';
import { nodeInventory } from './nodes/inventory-controller.ts';
import { nodeSpecs } from './nodes/spec-controller.ts';
import { reservations } from './reservations/controller.ts';
import type { Reconciler } from './runtime/reconciler.ts';
import { usage } from './usage/controller.ts';

export const RECONCILERS: readonly Reconciler[] = [
  reservations,
  nodeSpecs,
  nodeHealth,
  nodeInventory,
  deadGateways,
  usage,
  housekeeping,
];
