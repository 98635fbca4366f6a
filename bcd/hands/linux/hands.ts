/** The real machine. Sections are read one after the other: an inventory is never urgent, and cores are the tenants'. */
import { arch } from 'node:os';
import type { GpuXid, NodeInventory, SectionName, Sections } from '#core/inventory/inventory.ts';
import { INVENTORY_VERSION, parseSection } from '#core/inventory/inventory.ts';
import { problem } from '#core/kernel/errors.ts';
import { cdiDirectory, DEFAULT_CDI_DIRECTORY } from '../cdi-directory.ts';
import type { CdiDirectory, Hands } from '../hands.ts';
import { readNics, readPci } from './buses.ts';
import { readDisks } from './disks.ts';
import { readGpus } from './gpus.ts';
import { readCpu, readMemory, readSmbios, readSystem } from './platform.ts';
import { Tree } from './source.ts';
import { failureText, type RunTool, runTool } from './tool.ts';
import { readXids } from './xids.ts';

export interface LinuxHandsOptions {
  /** Where /sys, /proc, /etc and /dev are read; a captured copy in tests. */
  readonly root?: string;
  readonly cdiDirectory?: string;
  readonly run?: RunTool;
}

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64' };

export class LinuxHands implements Hands {
  readonly kind = 'linux';
  readonly cdi: CdiDirectory;
  private readonly tree: Tree;
  private readonly run: RunTool;
  /** First reading of each error: the kernel's boot time wavers by a second, and an inventory's hash must not. */
  private readonly xids = new Map<string, GpuXid>();

  constructor(options: LinuxHandsOptions = {}) {
    this.tree = new Tree(options.root);
    this.cdi = cdiDirectory(options.cdiDirectory ?? DEFAULT_CDI_DIRECTORY);
    this.run = options.run ?? runTool;
  }

  async collectInventory(signal?: AbortSignal): Promise<NodeInventory> {
    signal?.throwIfAborted();
    const { tree, run } = this;
    const smbios = readSmbios(tree);
    const pci = await section('pci', () => readPci(tree));
    const sections: Sections = {
      system: await section('system', async () => readSystem(tree, smbios, ARCHITECTURES[arch()] ?? arch())),
      cpu: await section('cpu', () => readCpu(tree, smbios.facts)),
      memory: await section('memory', async () => readMemory(tree, smbios.facts)),
      disks: await section('disks', () => readDisks(tree)),
      nics: await section('nics', () => readNics(tree, run, signal)),
      pci,
      gpus: await section('gpus', () =>
        readGpus({ run, pci, xids: () => this.readXids(), ...(signal === undefined ? {} : { signal }) }),
      ),
    };
    return { version: INVENTORY_VERSION, sections };
  }

  async bootId(): Promise<string> {
    const id = this.tree.value('/proc/sys/kernel/random/boot_id');
    if (id === undefined) throw problem('INTERNAL', 'the boot id cannot be read');
    return id;
  }

  async hostname(): Promise<string> {
    return this.tree.value('/proc/sys/kernel/hostname') ?? 'unnamed';
  }

  async reboot(): Promise<void> {
    const answer = await this.run('systemctl', ['reboot'], { deadlineMs: 30_000 });
    if (answer.exitCode === 0) return;
    const plain = await this.run('reboot', [], { deadlineMs: 30_000 });
    if (plain.exitCode !== 0) throw problem('INTERNAL', failureText('reboot', plain));
  }

  private readXids(): GpuXid[] {
    const bootId = this.tree.value('/proc/sys/kernel/random/boot_id');
    const btime = /^btime (\d{1,12})$/m.exec(this.tree.file('/proc/stat') ?? '')?.[1];
    if (bootId === undefined || btime === undefined) return [];
    const found = readXids(this.tree.path('/dev/kmsg'), bootId, Number(btime) * 1000);
    for (const xid of found) if (!this.xids.has(xid.id)) this.xids.set(xid.id, xid);
    const newest = [...this.xids.values()].slice(-64);
    this.xids.clear();
    for (const xid of newest) this.xids.set(xid.id, xid);
    return newest;
  }
}

/** A reader's own fault costs its section, never the inventory; what it read is held against the schema. */
async function section<N extends SectionName>(name: N, read: () => Promise<unknown>): Promise<Sections[N]> {
  try {
    return parseSection(name, await read());
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return parseSection(name, { ...EMPTY[name], status: 'failed', problems: [`${name}: ${why}`.slice(0, 500)] });
  }
}

const EMPTY: Readonly<Record<SectionName, object>> = {
  system: {},
  cpu: {},
  memory: {},
  disks: { disks: [] },
  nics: { nics: [] },
  pci: { devices: [] },
  gpus: { gpus: [] },
};
