/** A database handle whose commits are lost now and then: rolled back, or done and not heard of. */
import { type Database, DatabaseUnavailable, type Row, type Sql, type SqlValue } from '#core/kernel/database.ts';
import type { Random } from '#core/kernel/random.ts';

export interface Crashes {
  /** Share of transactions that die before, and after, their commit. */
  before: number;
  after: number;
  count: number;
}

export function crashing(db: Database, random: Random, crashes: Crashes): Database {
  const died = (when: string) => {
    crashes.count++;
    return new DatabaseUnavailable(`the connection died ${when} the commit`, undefined);
  };
  const fate = () => {
    const roll = random.next();
    if (roll < crashes.before) return 'before' as const;
    return roll < crashes.before + crashes.after ? ('after' as const) : undefined;
  };
  return {
    async query<R extends Row>(text: string, params?: readonly SqlValue[]) {
      // One statement that writes is a transaction of its own.
      const writes = /reservation_(create|admit|draft)/.test(text);
      const end = writes ? fate() : undefined;
      if (end === 'before') throw died('before');
      const rows = await db.query<R>(text, params);
      if (end === 'after') throw died('after');
      return rows;
    },
    async transaction<T>(fn: (tx: Sql) => Promise<T>) {
      const end = fate();
      const value = await db.transaction(async (tx) => {
        const made = await fn(tx);
        if (end === 'before') throw died('before');
        return made;
      });
      if (end === 'after') throw died('after');
      return value;
    },
  };
}
