/**
 * `NodeInventory v1`: what a machine is made of, in sections that travel one by one. The daemon keeps the hashes that
 * the control plane acknowledged and sends only sections whose hash moved; the control plane keeps the last good
 * reading of each. Do not add a field that changes without the hardware changing: it would travel for ever.
 */
import type { z } from 'zod';
import { canonicalHash, type Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import {
  cpuSection,
  disksSection,
  gpusSection,
  memorySection,
  nicsSection,
  pciSection,
  systemSection,
} from './sections.ts';

export * from './sections.ts';

export const INVENTORY_VERSION = 1;

/** Section name -> schema, in the order in which a document prints. */
export const SECTIONS = {
  system: systemSection,
  cpu: cpuSection,
  memory: memorySection,
  disks: disksSection,
  nics: nicsSection,
  pci: pciSection,
  gpus: gpusSection,
} as const;

export type SectionName = keyof typeof SECTIONS;
export const SECTION_NAMES = Object.keys(SECTIONS) as SectionName[];

export type Sections = { readonly [N in SectionName]: z.infer<(typeof SECTIONS)[N]> };
export type PartialSections = { readonly [N in SectionName]?: Sections[N] };
export type SectionHashes = { readonly [N in SectionName]?: string };

export interface NodeInventory {
  readonly version: typeof INVENTORY_VERSION;
  readonly sections: Sections;
}

export function isSectionName(name: string): name is SectionName {
  return Object.hasOwn(SECTIONS, name);
}

/** A section from outside. Throws INVALID_REQUEST that names the path; members it does not know are dropped. */
export function parseSection<N extends SectionName>(name: N, data: unknown): Sections[N] {
  const result = SECTIONS[name].safeParse(data);
  if (result.success) return result.data as Sections[N];
  throw problem('INVALID_REQUEST', `inventory section "${name}" is not valid`, {
    errors: result.error.issues.slice(0, 20).map((issue) => ({
      field: ['inventory', name, ...issue.path.map(String)].join('.'),
      message: issue.message,
    })),
  });
}

/** A whole document from outside, such as a file or a fixture. */
export function parseInventory(data: unknown): NodeInventory {
  const document = (typeof data === 'object' && data !== null ? data : {}) as Record<string, unknown>;
  if (document['version'] !== INVENTORY_VERSION) {
    throw problem('INVALID_REQUEST', `inventory version ${INVENTORY_VERSION} expected`, {
      errors: [{ field: 'inventory.version', message: `expected ${INVENTORY_VERSION}` }],
    });
  }
  const given = (document['sections'] ?? {}) as Record<string, unknown>;
  const sections = Object.fromEntries(SECTION_NAMES.map((name) => [name, parseSection(name, given[name])]));
  return { version: INVENTORY_VERSION, sections: sections as unknown as Sections };
}

/** The hash of a section is the hash of its canonical JSON after parsing, so both ends come to the same one. */
export function hashSection(name: SectionName, section: Sections[SectionName]): string {
  return canonicalHash(parseSection(name, section) as unknown as Json);
}

export async function hashSections(sections: PartialSections): Promise<SectionHashes> {
  const hashes: { [N in SectionName]?: string } = {};
  for (const name of SECTION_NAMES) {
    const section = sections[name];
    if (section !== undefined) hashes[name] = hashSection(name, section);
  }
  return hashes;
}

/** The sections that the other side does not hold yet, given the hashes that it acknowledged. */
export async function changedSections(
  inventory: NodeInventory,
  acknowledged: SectionHashes,
): Promise<{ readonly name: SectionName; readonly hash: string; readonly data: Sections[SectionName] }[]> {
  const hashes = await hashSections(inventory.sections);
  return SECTION_NAMES.filter((name) => hashes[name] !== acknowledged[name]).map((name) => ({
    name,
    hash: hashes[name]!,
    data: inventory.sections[name],
  }));
}
