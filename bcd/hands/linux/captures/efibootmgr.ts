/** `efibootmgr -v`: what the firmware boots, and in which order. */
import { clean, decimal, given } from '../source.ts';

export interface BootEntry {
  /** Four hex digits, as in `Boot0004`. */
  readonly number: string;
  readonly active: boolean;
  readonly label: string;
  readonly path?: string;
}
export interface BootConfiguration {
  readonly current?: string;
  readonly next?: string;
  readonly timeoutSeconds?: number;
  readonly order: readonly string[];
  readonly entries: readonly BootEntry[];
}

export function parseEfibootmgr(text: string): BootConfiguration {
  const entries: BootEntry[] = [];
  const heads = new Map<string, string>();
  for (const line of text.slice(0, 1_000_000).split('\n')) {
    const entry = /^Boot([0-9A-F]{4})(\*| ) ([^\t]*)(?:\t(.*))?$/.exec(line);
    if (entry !== null) {
      const label = clean(entry[3]) ?? '';
      entries.push(given({ number: entry[1]!, active: entry[2] === '*', label, path: clean(entry[4]) }));
      continue;
    }
    const head = /^(BootCurrent|BootNext|BootOrder|Timeout): (.*)$/.exec(line);
    if (head !== null) heads.set(head[1]!, head[2]!.trim());
  }
  return given({
    current: heads.get('BootCurrent'),
    next: heads.get('BootNext'),
    timeoutSeconds: decimal(/^(\d+)/.exec(heads.get('Timeout') ?? '')?.[1]),
    order: (heads.get('BootOrder') ?? '').split(',').filter((n) => /^[0-9A-F]{4}$/.test(n)),
    entries: entries.slice(0, 1024),
  });
}
