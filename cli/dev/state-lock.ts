/**
 * One control plane a state folder. The lock is the kernel's, on a file that SQLite opens: it goes with the process
 * that holds it, however that ends, and cannot be mistaken for another process that got the same pid.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Problem } from '#core/kernel/errors.ts';

export function lockStateDir(stateDir: string): { release(): void } {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const lock = new DatabaseSync(join(stateDir, 'lock.db'));
  try {
    lock.exec('begin exclusive');
  } catch (e) {
    lock.close();
    const what = `${stateDir} is in use by another control plane: stop it, or choose another --state-dir`;
    throw new Problem('CONFLICT', what, undefined, e);
  }
  return { release: () => lock.close() };
}
