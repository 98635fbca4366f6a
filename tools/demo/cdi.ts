/** What the CDI folders of the machines name, read from the files as a container runtime reads them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

interface CdiFile {
  readonly cdiVersion: string;
  readonly kind: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly devices: readonly { readonly name: string; readonly annotations: Readonly<Record<string, string>> }[];
}

export interface Named {
  readonly folder: string;
  readonly kind: string;
  readonly allocationId: string;
  /** Stable ids of the devices. */
  readonly stableIds: readonly string[];
}

const VENDOR = 'bettercompute.dev';

export function namedIn(folders: readonly string[]): Named[] {
  return folders.filter(existsSync).flatMap((folder) =>
    readdirSync(folder)
      .filter((f) => f.endsWith('.json'))
      .map((f) => {
        const spec = JSON.parse(readFileSync(join(folder, f), 'utf8')) as CdiFile;
        return {
          folder,
          kind: spec.kind,
          allocationId: spec.annotations[`${VENDOR}/allocation`] ?? '',
          stableIds: spec.devices.map((d) => d.annotations[`${VENDOR}/stable-id`] ?? '').sort(),
        };
      }),
  );
}
