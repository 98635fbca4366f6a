/**
 * What a machine can do for the daemon's core. The real Linux host and the fake machine both implement this and pass
 * one conformance suite, so the core never asks which it holds. Every call has its own deadline inside; none throws for
 * hardware that answers badly (that is a section's `status`), only for a call that could not be carried out.
 */
import type { NodeInventory } from '#core/inventory/inventory.ts';

/** A directory of CDI specs. Only files of ours (see `isOwnCdiFile`) are ever listed, read, written or removed. */
export interface CdiDirectory {
  /** Where it is, for people. */
  readonly location: string;
  /** Our files: name -> text. A missing directory is an empty one. */
  list(): Promise<ReadonlyMap<string, string>>;
  /** All or nothing, and durable when it resolves. */
  write(fileName: string, text: string): Promise<void>;
  /** Durable when it resolves; no error when it is not there. */
  remove(fileName: string): Promise<void>;
}

export interface Hands {
  readonly kind: 'linux' | 'fake';
  readonly cdi: CdiDirectory;
  /** Reads the hardware. A part that cannot be read is a section with status `failed`, not a rejected promise. */
  collectInventory(signal?: AbortSignal): Promise<NodeInventory>;
  /** Changes with every boot and with nothing else. */
  bootId(): Promise<string>;
  hostname(): Promise<string>;
  /** Resolves once the machine accepted the order; the process may not live to see the end. */
  reboot(): Promise<void>;
}

const OWN_CDI_FILE = /^bettercompute-[A-Za-z0-9_.-]{1,200}\.json$/;

/** The one rule by which a CDI file is ours. Runtimes and other tools keep theirs in the same directory. */
export function isOwnCdiFile(name: string): boolean {
  return OWN_CDI_FILE.test(name);
}
