/** `nvidia-smi topo -m`: how GPUs and NICs reach each other, and which CPUs are near. */
import { stripVTControlCharacters } from 'node:util';
import type { GpuLink } from '#core/inventory/inventory.ts';
import { clean, UnreadableSource, whole } from './source.ts';

export interface GpuTopology {
  /** Names of the matrix, GPUs first as printed: `GPU0`, `mlx5_0`. */
  readonly names: readonly string[];
  /** Each pair of GPUs once, lower index first. */
  readonly links: readonly GpuLink[];
  /** GPU index -> CPU list, NUMA node. */
  readonly affinity: ReadonlyMap<number, { readonly cpus?: string; readonly numaNode?: number }>;
}

const SOURCE = 'nvidia-smi topo -m';
const KIND = /^(X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS)$/;
const gpuIndex = (name: string) => whole(/^GPU(\d{1,3})$/.exec(name)?.[1]);

/** Throws UnreadableSource when there is no matrix in the text. */
export function parseTopology(text: string): GpuTopology {
  // The tool underlines its header on terminals and off them.
  const lines = stripVTControlCharacters(text.slice(0, 1_000_000)).split('\n');
  const start = lines.findIndex((l) => /^\s+GPU0\b/.test(l));
  if (start < 0) throw new UnreadableSource(SOURCE, 'there is no matrix in it');
  const header = lines[start]!.split('\t').map((c) => c.trim());
  const end = header.findIndex((c) => /^(CPU|NUMA|GPU NUMA)/.test(c));
  const names = header.slice(1, end < 0 ? undefined : end).filter((c) => c !== '');
  const column = (label: string) => header.indexOf(label);
  const links: GpuLink[] = [];
  const affinity = new Map<number, { cpus?: string; numaNode?: number }>();
  for (const line of lines.slice(start + 1)) {
    const cells = line.split('\t').map((c) => c.trim());
    const a = gpuIndex(cells[0] ?? '');
    if (a === undefined) {
      if (cells[0] === '' || /^Legend/.test(cells[0]!)) break;
      continue;
    }
    names.forEach((name, i) => {
      const [b, kind] = [gpuIndex(name), cells[i + 1] ?? ''];
      if (b !== undefined && a < b && KIND.test(kind)) links.push({ a, b, kind });
    });
    const cpus = clean(cells[column('CPU Affinity')]);
    const numaNode = whole(cells[column('NUMA Affinity')]);
    affinity.set(a, { ...(cpus === undefined ? {} : { cpus }), ...(numaNode === undefined ? {} : { numaNode }) });
  }
  return { names, links: links.slice(0, 4096), affinity };
}
