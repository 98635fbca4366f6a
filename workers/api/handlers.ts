/** Which service answers which operation: the one place where contracts and services meet. */
import type { Operation } from '#core/kernel/operations.ts';
import type { OperationName } from '#core/operations.ts';
import { handlers as audit } from '#services/audit/index.ts';
import { handlers as capacity } from '#services/capacity/index.ts';
import { handlers as clock } from '#services/clock/index.ts';
import type { Handler } from '#services/context.ts';
import { handlers as devices } from '#services/devices/index.ts';
import { handlers as events } from '#services/events/index.ts';
import { handlers as joinTokens } from '#services/join-tokens/index.ts';
import { handlers as leases } from '#services/leases/index.ts';
import { handlers as nodes } from '#services/nodes/index.ts';
import { handlers as offers } from '#services/offers/index.ts';
import { handlers as pools } from '#services/pools/index.ts';
import { handlers as quotas } from '#services/quotas/index.ts';
import { handlers as reservations } from '#services/reservations/index.ts';
import { handlers as sites } from '#services/sites/index.ts';
import { handlers as usage } from '#services/usage/index.ts';
import { handlers as webhooks } from '#services/webhooks/index.ts';

const table = {
  ...sites,
  ...pools,
  ...offers,
  ...quotas,
  ...joinTokens,
  ...nodes,
  ...devices,
  ...capacity,
  ...reservations,
  ...usage,
  ...webhooks,
  ...events,
  ...audit,
  ...leases,
  ...clock,
} satisfies Record<Exclude<OperationName, 'watch'>, unknown>;

/** Every operation that answers once. `watch` streams, and is mounted by itself (watch.ts). */
export const HANDLERS = table as unknown as Readonly<Record<string, Handler<Operation>>>;
