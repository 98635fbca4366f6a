/** `lspci -nn` and `lspci -mmv`, for documents that other tools captured. Lines that say nothing known are passed over. */
import type { PciDevice } from '#core/inventory/inventory.ts';
import { clean, given, pciAddress } from '../source.ts';

const TEXT_MAX = 4_000_000;

/** `06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)` */
export function parseLspciNn(text: string): PciDevice[] {
  const found: PciDevice[] = [];
  for (const line of text.slice(0, TEXT_MAX).split('\n')) {
    const head = /^([0-9a-f:.]{7,16}) [^[\]]{1,100} \[([0-9a-f]{4})\]: (.*)$/.exec(line);
    const ids = /^(.*) \[([0-9a-f]{4}):([0-9a-f]{4})\](?: \(.*)?$/.exec(head?.[3] ?? '');
    const address = pciAddress(head?.[1]);
    if (head === null || ids === null || address === undefined) continue;
    found.push(given({ address, vendor: ids[2]!, device: ids[3]!, class: head[2]!, name: clean(ids[1]) }));
  }
  return found.slice(0, 8192);
}

/** Without numbers: names only. */
export interface NamedPciDevice {
  readonly address: string;
  readonly class: string;
  readonly vendor: string;
  readonly device: string;
  readonly subsystem?: string;
  readonly revision?: string;
}

/** Blocks of `Label:<tab>value`, one a device. */
export function parseLspciMmv(text: string): NamedPciDevice[] {
  return text
    .slice(0, TEXT_MAX)
    .split(/\n\s*\n/)
    .slice(0, 8192)
    .flatMap((block): NamedPciDevice[] => {
      const fields = new Map(block.split('\n').map((line) => [line.split(':\t')[0]!, clean(line.split(':\t')[1])]));
      const [address, kind, vendor, device] = [
        pciAddress(fields.get('Slot')),
        fields.get('Class'),
        fields.get('Vendor'),
        fields.get('Device'),
      ];
      if (address === undefined || kind === undefined || vendor === undefined || device === undefined) return [];
      const [subsystem, revision] = [fields.get('SDevice'), fields.get('Rev')];
      return [given({ address, class: kind, vendor, device, subsystem, revision })];
    });
}
