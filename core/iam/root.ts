/**
 * The platform's own tenant in the embedded engine: one fixed id, so that the first start and every later one mean the
 * same tenant. A remote service has a root tenant of its own; its id is configuration.
 */
import { type Id, idFromBytes } from '../kernel/ids.ts';

export const ROOT: Id<'tenant'> = idFromBytes('tenant', new Uint8Array(16));
