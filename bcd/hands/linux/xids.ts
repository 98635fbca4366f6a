/** Errors that the NVIDIA driver wrote to the kernel log (`NVRM: Xid …`), read from /dev/kmsg without waiting. */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import type { GpuXid } from '#core/inventory/inventory.ts';
import { fromMillis } from '#core/kernel/time.ts';
import { pciAddress } from './source.ts';

const RECORDS_MAX = 50_000;
const XIDS_MAX = 64;

/** One record of /dev/kmsg: `level,sequence,microseconds,flags;text`. */
export function parseXid(record: string, bootId: string, bootMillis: number): GpuXid | undefined {
  const match = /^\d+,(\d{1,18}),(\d{1,16}),[^;]*;.*NVRM: Xid \(PCI:([0-9a-f:]{7,16})(?:\.\d)?\): (\d{1,5}),/i.exec(
    record,
  );
  const address = pciAddress(`${match?.[3]}.0`);
  if (match === null || address === undefined) return undefined;
  const at = bootMillis + Math.floor(Number(match[2]) / 1000);
  // Past this the text of an instant has no year of four digits any more.
  if (!(at >= 0 && at < 253_402_300_800_000) || Number(match[4]) > 65_535) return undefined;
  return { id: `${bootId}:${match[1]}`, pciAddress: address, code: Number(match[4]), at: fromMillis(at) };
}

/** The newest errors in the log; none when it may not be read. */
export function readXids(path: string, bootId: string, bootMillis: number): GpuXid[] {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return [];
  }
  const found: GpuXid[] = [];
  const buffer = Buffer.alloc(8192);
  try {
    for (let i = 0; i < RECORDS_MAX; i++) {
      let n: number;
      try {
        n = readSync(fd, buffer, 0, buffer.length, null);
      } catch (error) {
        // EPIPE: records were overwritten while we read; go on with the next.
        if ((error as NodeJS.ErrnoException).code === 'EPIPE') continue;
        break;
      }
      if (n === 0) break;
      const xid = parseXid(buffer.toString('utf8', 0, n), bootId, bootMillis);
      if (xid !== undefined) found.push(xid);
    }
  } finally {
    closeSync(fd);
  }
  return found.slice(-XIDS_MAX);
}
