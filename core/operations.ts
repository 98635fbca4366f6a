/**
 * Every operation of the API. Routes, OpenAPI, the typed client, the command line, the reference and the no-rights test
 * walk this record; nothing else lists operations.
 */
import { auditOperations } from './audit/contract.ts';
import { capacityOperations } from './capacity/contract.ts';
import { clockOperations } from './clock/contract.ts';
import { deviceOperations } from './devices/contract.ts';
import { eventOperations } from './events/contract.ts';
import { joinTokenOperations } from './join-tokens/contract.ts';
import type { Operation } from './kernel/operations.ts';
import { leaseOperations } from './leases/contract.ts';
import { nodeOperations } from './nodes/contract.ts';
import { offerOperations } from './offers/contract.ts';
import { poolOperations } from './pools/contract.ts';
import { quotaOperations } from './quotas/contract.ts';
import { reservationOperations } from './reservations/contract.ts';
import { siteOperations } from './sites/contract.ts';
import { usageOperations } from './usage/contract.ts';
import { webhookOperations } from './webhooks/contract.ts';

export const OPERATIONS = {
  ...siteOperations,
  ...poolOperations,
  ...offerOperations,
  ...quotaOperations,
  ...joinTokenOperations,
  ...nodeOperations,
  ...deviceOperations,
  ...capacityOperations,
  ...reservationOperations,
  ...usageOperations,
  ...webhookOperations,
  ...eventOperations,
  ...auditOperations,
  ...leaseOperations,
  ...clockOperations,
} as const;

export type OperationName = keyof typeof OPERATIONS;

/** By name, for those who got the name from outside. */
export const operationNamed = (name: string): Operation | undefined =>
  Object.hasOwn(OPERATIONS, name) ? (OPERATIONS[name as OperationName] as unknown as Operation) : undefined;

/** Actions that policies may name: what the catalog of the identity service is made of. */
export const IAM_ACTIONS_OF_COMPUTE: readonly string[] = [
  ...new Set(Object.values(OPERATIONS).map((o) => (o as unknown as Operation).iam.action)),
].sort();
