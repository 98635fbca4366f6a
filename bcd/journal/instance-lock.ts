/**
 * One daemon per state directory. The lock is SQLite's own lock on a file of its own: the kernel lets go of it when the
 * holder dies, however it dies, so that no stale lock ever needs an operator.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { problem } from '#core/kernel/errors.ts';

export interface InstanceLock {
  release(): void;
}

const SQLITE_BUSY = 5;

/** Throws CONFLICT when another process holds it. */
export function holdInstance(stateDirectory: string): InstanceLock {
  mkdirSync(stateDirectory, { recursive: true, mode: 0o700 });
  const db = new DatabaseSync(join(stateDirectory, 'instance.lock'), { timeout: 0 });
  try {
    db.exec('pragma journal_mode = delete; begin exclusive');
  } catch (error) {
    db.close();
    if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error;
    throw problem('CONFLICT', `another bcd runs with the state directory ${stateDirectory}`);
  }
  return {
    release: () => {
      if (db.isOpen) db.close();
    },
  };
}
