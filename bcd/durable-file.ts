/**
 * Files that are either the old or the new ones after a crash, never half of each: temporary file in the same
 * directory, fsync, rename, fsync of the directory (without which a power cut may bring the old name back).
 */
import { randomUUID } from 'node:crypto';
import { mkdir, open, rename, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/** Leftovers of a killed writer begin so; a directory's owner may sweep them. */
export const TEMPORARY_PREFIX = '.bettercompute-tmp-';

export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function writeDurably(path: string, text: string, mode: number): Promise<void> {
  const directory = dirname(path);
  await mkdir(directory, { recursive: true, mode: mode & 0o077 ? 0o755 : 0o700 });
  const temporary = join(directory, `${TEMPORARY_PREFIX}${basename(path)}-${randomUUID().slice(0, 8)}`);
  try {
    const handle = await open(temporary, 'wx', mode);
    try {
      // The process's umask must not decide who can read it.
      await handle.chmod(mode);
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await syncDirectory(directory);
}

export async function removeDurably(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  await syncDirectory(dirname(path));
}
