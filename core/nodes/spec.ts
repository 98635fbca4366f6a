/**
 * NodeSpec: what a machine shall be, in sections that the daemon converges in a fixed order. The generation stands
 * beside the document, not in it: it rises only when the canonical JSON of the document changes.
 * Both sides read this file: the control plane composes with it, the daemon validates with it.
 */
import { z } from '@hono/zod-openapi';

/** The order in which the daemon converges the sections. */
export const SPEC_SECTIONS = ['host', 'devices', 'instances', 'access', 'telemetry', 'daemon'] as const;

export const SpecDevice = z.object({
  id: z.string(),
  class: z.string(),
  /** GPU UUID, disk WWN, MAC: what the machine itself knows the device by. */
  stableId: z.string(),
});

export const SpecAllocation = z.object({
  allocationId: z.string(),
  reservationId: z.string(),
  tenantId: z.string(),
  /** Sorted by class, then stable id. */
  devices: z.array(SpecDevice),
});

/** Loose where later versions may add: an older daemon keeps what it does not know. */
export const NodeSpec = z.object({
  version: z.literal(1),
  host: z.looseObject({}),
  /** One CDI spec is written for each allocation, naming exactly its devices. */
  devices: z.looseObject({ allocations: z.array(SpecAllocation) }),
  instances: z.looseObject({}),
  access: z.looseObject({}),
  telemetry: z.looseObject({}),
  daemon: z.looseObject({}),
});

export type NodeSpec = z.output<typeof NodeSpec>;
export type SpecAllocation = z.output<typeof SpecAllocation>;

/** The document for a node that holds these allocations. Equal holdings give equal documents, whatever their order. */
export function composeSpec(allocations: readonly SpecAllocation[]): NodeSpec {
  const order = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  return {
    version: 1,
    host: {},
    devices: {
      allocations: allocations
        .map((a) => ({
          ...a,
          devices: [...a.devices].sort((x, y) => order(x.class, y.class) || order(x.stableId, y.stableId)),
        }))
        .sort((a, b) => order(a.allocationId, b.allocationId)),
    },
    instances: {},
    access: {},
    telemetry: {},
    daemon: {},
  };
}
