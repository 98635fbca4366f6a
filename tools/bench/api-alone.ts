/** The product's Worker with shards that sleep: admissions alone, as when the reconcilers run on other machines. */
import { DurableObject } from 'cloudflare:workers';

export { Hub } from '#workers/durable/hub.ts';
export { Lease } from '#workers/durable/lease.ts';
export { default } from '#workers/index.ts';

export class Shard extends DurableObject {
  poke(): void {}
}
