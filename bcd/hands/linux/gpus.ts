/** The gpus section: the vendor's tool asked with a deadline; its failure is a failed section, never an empty one. */
import type { GpusSection, GpuXid, PciSection } from '#core/inventory/inventory.ts';
import { parseTopology } from './gpu-topology.ts';
import { nameMigInstances, parseGpuList, parseNvidiaSmi } from './nvidia-smi.ts';
import { UnreadableSource } from './source.ts';
import { failureText, type RunTool } from './tool.ts';

const PROGRAM = 'nvidia-smi';
/** With persistence mode off the driver loads anew for each call: seconds per GPU. */
const QUERY_DEADLINE_MS = 60_000;
const EXTRA_DEADLINE_MS = 20_000;

const unread = (status: 'failed' | 'absent', problem: string): GpusSection => ({
  status,
  problems: [problem],
  gpus: [],
  links: [],
  xids: [],
});

export interface GpuSources {
  readonly run: RunTool;
  readonly pci: PciSection;
  readonly xids: () => readonly GpuXid[];
  readonly signal?: AbortSignal;
}

export async function readGpus(sources: GpuSources): Promise<GpusSection> {
  const { run, pci } = sources;
  const signal = sources.signal === undefined ? {} : { signal: sources.signal };
  const answer = await run(PROGRAM, ['-q', '-x'], { deadlineMs: QUERY_DEADLINE_MS, ...signal });
  if (answer.outcome === 'missing') return unread('absent', failureText(PROGRAM, answer));
  if (answer.outcome !== 'exited') return unread('failed', failureText(PROGRAM, answer));
  let section: GpusSection;
  try {
    section = parseNvidiaSmi(answer.stdout);
  } catch (error) {
    if (!(error instanceof UnreadableSource)) throw error;
    return unread('failed', answer.exitCode === 0 ? error.message : failureText(PROGRAM, answer));
  }
  if (answer.exitCode !== 0) {
    // Some warnings (a damaged InfoROM) come as an exit code beside a whole document.
    section = { ...section, status: 'partial', problems: [`exit code ${answer.exitCode}`, ...section.problems] };
  }
  if (section.gpus.some((g) => g.mig.devices.length > 0)) {
    const list = await run(PROGRAM, ['-L'], { deadlineMs: EXTRA_DEADLINE_MS, ...signal });
    if (list.exitCode === 0) section = nameMigInstances(section, parseGpuList(list.stdout));
  }
  if (section.gpus.length > 1) {
    const topology = await run(PROGRAM, ['topo', '-m'], { deadlineMs: EXTRA_DEADLINE_MS, ...signal });
    try {
      if (topology.exitCode === 0) section = { ...section, links: [...parseTopology(topology.stdout).links] };
    } catch (error) {
      if (!(error instanceof UnreadableSource)) throw error;
    }
  }
  const numa = new Map(pci.devices.map((d) => [d.address, d.numaNode]));
  const gpus = section.gpus.map((g) => {
    const numaNode = g.pciAddress === undefined ? undefined : numa.get(g.pciAddress);
    return numaNode === undefined ? g : { ...g, numaNode };
  });
  return { ...section, gpus, xids: [...sources.xids()] };
}
