/**
 * Tells the hubs of the tenants that have new events. The position lives in memory: after a restart it begins at the
 * end of the stream, and what was missed is found by the watchers' own looks.
 */
import type { Database } from '#core/kernel/database.ts';
import { type OutboxCursor, outboxEnd, readOutbox } from '#db/outbox.ts';
import type { DurableEnv } from './bindings.ts';

const PAGE = 500;

export class Announcer {
  #after: OutboxCursor | undefined;
  readonly #db: Database;
  readonly #hubs: DurableEnv['HUB'];

  constructor(db: Database, hubs: DurableEnv['HUB']) {
    this.#db = db;
    this.#hubs = hubs;
  }

  async announce(): Promise<void> {
    this.#after ??= await outboxEnd(this.#db);
    const events = await readOutbox(this.#db, this.#after, PAGE);
    const last = events.at(-1);
    if (last === undefined) return;
    this.#after = { xid: last.xid, seq: last.seq };
    const cursor = `${last.xid}.${last.seq}`;
    const tenants = new Set(events.map((e) => e.tenant_id));
    await Promise.allSettled([...tenants].map((tenant) => this.#hubs.getByName(tenant).poke(cursor)));
  }
}
