/** CDI specs in a real directory, used by both hands. See CdiDirectory for what it promises. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { problem } from '#core/kernel/errors.ts';
import { removeDurably, TEMPORARY_PREFIX, writeDurably } from '../durable-file.ts';
import { type CdiDirectory, isOwnCdiFile } from './hands.ts';

export const DEFAULT_CDI_DIRECTORY = '/etc/cdi';

export function cdiDirectory(location: string): CdiDirectory {
  const path = (fileName: string) => {
    if (isOwnCdiFile(fileName)) return join(location, fileName);
    throw problem('INVALID_REQUEST', `${fileName} is not a CDI file of ours`, {
      errors: [{ field: 'fileName', message: 'expected bettercompute-<allocation>.json' }],
    });
  };
  const names = async () => {
    try {
      return (await readdir(location)).sort();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  };
  return {
    location,
    async list() {
      const found = new Map<string, string>();
      for (const name of await names()) {
        // What a killed writer left behind is ours and nobody's.
        if (name.startsWith(TEMPORARY_PREFIX)) await removeDurably(join(location, name));
        else if (isOwnCdiFile(name)) found.set(name, await readFile(join(location, name), 'utf8'));
      }
      return found;
    },
    async write(fileName, text) {
      await writeDurably(path(fileName), text, 0o644);
    },
    async remove(fileName) {
      await removeDurably(path(fileName));
    },
  };
}

/** For machines that exist only in memory. */
export function memoryCdiDirectory(location = 'memory'): CdiDirectory {
  const files = new Map<string, string>();
  const own = (fileName: string) => {
    if (isOwnCdiFile(fileName)) return fileName;
    throw problem('INVALID_REQUEST', `${fileName} is not a CDI file of ours`, {
      errors: [{ field: 'fileName', message: 'expected bettercompute-<allocation>.json' }],
    });
  };
  return {
    location,
    list: async () => new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1))),
    write: async (fileName, text) => {
      files.set(own(fileName), text);
    },
    remove: async (fileName) => {
      files.delete(own(fileName));
    },
  };
}
