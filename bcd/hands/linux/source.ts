/**
 * How the readers reach the machine: a file tree whose root can be a captured copy, and values read strictly. Anything
 * unreadable is `undefined`, never an exception and never 0: half of sysfs answers EINVAL or EIO for absent things.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { readdir, readlink, realpath } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';

/** What a parser throws, and nothing else, for a document that it cannot use. */
export class UnreadableSource extends Error {
  readonly source: string;
  constructor(source: string, why: string) {
    super(`${source}: ${why}`);
    this.name = 'UnreadableSource';
    this.source = source;
  }
}

const FILE_BYTES_MAX = 4 * 1024 * 1024;

export class Tree {
  readonly root: string;
  constructor(root = '/') {
    this.root = resolve(root);
  }

  path(path: string): string {
    return join(this.root, path);
  }

  /** Sizes of sysfs and procfs files are lies, so it reads until the end or the bound. */
  bytes(path: string): Buffer | undefined {
    let fd: number;
    try {
      fd = openSync(this.path(path), 'r');
    } catch {
      return undefined;
    }
    try {
      const chunks: Buffer[] = [];
      let total = 0;
      while (total < FILE_BYTES_MAX) {
        const chunk = Buffer.alloc(65_536);
        const n = readSync(fd, chunk, 0, chunk.length, null);
        if (n === 0) break;
        chunks.push(chunk.subarray(0, n));
        total += n;
      }
      return Buffer.concat(chunks);
    } catch {
      return undefined;
    } finally {
      closeSync(fd);
    }
  }

  file(path: string): string | undefined {
    return this.bytes(path)?.toString('utf8');
  }

  /** One value in one file: cleaned, undefined when empty. */
  value(path: string): string | undefined {
    const text = this.file(path);
    return text === undefined ? undefined : clean(text);
  }

  integer(path: string): number | undefined {
    return decimal(this.value(path));
  }

  /** Names in a directory, in natural order; none when it is not there. */
  async names(path: string): Promise<string[]> {
    try {
      return (await readdir(this.path(path))).sort(naturally);
    } catch {
      return [];
    }
  }

  /** The path behind all links, as seen from the root. */
  async real(path: string): Promise<string | undefined> {
    try {
      const target = relative(this.root, await realpath(this.path(path)));
      return target.startsWith('..') ? undefined : `/${target}`;
    } catch {
      return undefined;
    }
  }

  /** The last name of a link's target, which need not exist. */
  async linkName(path: string): Promise<string | undefined> {
    try {
      return (await readlink(this.path(path))).split('/').at(-1);
    } catch {
      return undefined;
    }
  }
}

/** `nvme2` before `nvme10`. */
export function naturally(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}

/** Control characters out, inner white space collapsed, bounded; undefined when nothing is left. */
export function clean(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is to go
  const cleaned = text.replace(/[\u0000-\u001f\u007f\ufffd\s]+/g, ' ').trim();
  return cleaned === '' ? undefined : cleaned.slice(0, 256).trim();
}

/** What tools print when they have no value. */
const NO_VALUE = /^(n\/a|\[n\/a\]|none|null|\[?not supported\]?|unknown|\[?insufficient permissions\]?)$/i;
export function present(text: string | undefined): string | undefined {
  const cleaned = clean(text);
  return cleaned === undefined || NO_VALUE.test(cleaned) ? undefined : cleaned;
}

/** A non-negative decimal with a point or without. A comma, a unit or a word makes it no number at all. */
export function decimal(text: string | undefined): number | undefined {
  if (text === undefined || !/^\d{1,15}(\.\d{1,9})?$/.test(text)) return undefined;
  return Number(text);
}

/** A count, an index or a minor number: digits alone, at most six. */
export function whole(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,6}$/.test(text) ? Number(text) : undefined;
}

const UNITS: Readonly<Record<string, number>> = {
  b: 1,
  bytes: 1,
  kb: 1024,
  kib: 1024,
  mb: 1024 ** 2,
  mib: 1024 ** 2,
  gb: 1024 ** 3,
  gib: 1024 ** 3,
  tb: 1024 ** 4,
  tib: 1024 ** 4,
};

/** `81559 MiB` in bytes. The tools that are read here mean powers of 1024 whichever way they write the unit. */
export function sizeInBytes(text: string | undefined): number | undefined {
  const match = /^(\S+)\s+([a-z]+)$/i.exec(text?.trim() ?? '');
  const [amount, unit] = [decimal(match?.[1]), UNITS[match?.[2]?.toLowerCase() ?? '']];
  if (amount === undefined || unit === undefined) return undefined;
  const bytes = Math.round(amount * unit);
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** `00000000:53:00.0` and `0000:53:00.0` are one address; sysfs writes the second. */
export function pciAddress(text: string | undefined): string | undefined {
  const match = /^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$/i.exec(text?.trim() ?? '');
  if (match === null) return undefined;
  const domain = (match[1] ?? '').replace(/^0+/, '').padStart(4, '0');
  return `${domain}:${match[2]}:${match[3]}.${match[4]}`.toLowerCase();
}

/** The innermost PCI function on a sysfs device path. */
export function pciAddressIn(path: string | undefined): string | undefined {
  return path?.match(/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=\/|$)/g)?.at(-1);
}

export function macAddress(text: string | undefined): string | undefined {
  const mac = text?.trim().toLowerCase();
  return mac !== undefined && /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/.test(mac) && !/^[0:]+$/.test(mac) ? mac : undefined;
}

/** Members whose value is undefined are left out, so that equal hardware gives equal JSON. */
export function given<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
