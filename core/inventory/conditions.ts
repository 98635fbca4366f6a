/**
 * Conditions: typed statements about a node or one of its devices. The table says what each means and whether it keeps
 * work away; a NoSchedule condition without a subject stops the whole node, with a subject that device (whose health
 * says the same to the placer). Derived anew from the stored inventory each time, so a condition ends when its cause does.
 */
import { AMBIGUOUS, type Device, diskStableId, partitioned } from './devices.ts';
import type { GpuFault } from './gpu-faults.ts';
import type { HardwareKey } from './hardware-key.ts';
import { type PartialSections, SECTION_NAMES } from './inventory.ts';

export type ConditionEffect = 'NoSchedule' | 'none';
export interface ConditionSpec {
  readonly effect: ConditionEffect;
  /** What `subject` names; `node` has an empty one. */
  readonly about: 'node' | 'device' | 'section';
  readonly doc: string;
}
const spec = (effect: ConditionEffect, about: ConditionSpec['about'], doc: string): ConditionSpec => ({
  effect,
  about,
  doc,
});

/** Append only: names are part of the contract. */
export const CONDITIONS = {
  GpuCountMismatch: spec('NoSchedule', 'node', 'The GPUs that were counted and the GPUs that were described differ.'),
  GpuLost: spec('NoSchedule', 'device', 'The driver lost the GPU, or it is not in the last inventory.'),
  GpuUnhealthy: spec('NoSchedule', 'device', 'The GPU answers with errors in place of values, or asks for a recovery.'),
  GpuFaultTransient: spec('NoSchedule', 'device', 'A driver error that clears after ten minutes without another.'),
  GpuFaultFatal: spec('NoSchedule', 'device', 'A driver error that stays until the GPU was reset and a check passed.'),
  GpuIdentityMissing: spec('NoSchedule', 'node', 'A GPU has no UUID, so it cannot be booked or told from another.'),
  GpuDriverMissing: spec('none', 'node', 'PCI shows NVIDIA GPUs, but no driver tool answers for them.'),
  MigLayoutMissing: spec('NoSchedule', 'device', 'MIG mode is on and instances that were there are gone.'),
  MigModePending: spec('NoSchedule', 'device', 'The MIG mode changes with the next reset.'),
  MigIdentityMissing: spec('NoSchedule', 'device', 'MIG instances without a UUID cannot be booked.'),
  DeviceMissing: spec(
    'NoSchedule',
    'device',
    'A known disk, NIC function or MIG instance is not in the last inventory.',
  ),
  DeviceIdentityAmbiguous: spec('NoSchedule', 'device', 'Several devices of the machine answer with one identity.'),
  DiskIdentityMissing: spec('none', 'node', 'Disks without WWN and serial number cannot be booked.'),
  InventoryStale: spec(
    'none',
    'section',
    'The last reading failed; what is shown is the last good one, health unknown.',
  ),
  HardwareKeyUntrusted: spec(
    'none',
    'node',
    'Too few identifiers survive to recognize this machine when it joins again.',
  ),
  NodeUnreachable: spec('NoSchedule', 'node', 'No session stands within its liveness lease.'),
  ClockSkew: spec('none', 'node', "The machine's clock and the control plane's differ by more than is healthy."),
} as const satisfies Record<string, ConditionSpec>;

export type ConditionType = keyof typeof CONDITIONS;

/** Those that this file derives. Others are written by whoever watches their cause, and are left alone here. */
export const INVENTORY_CONDITIONS: readonly ConditionType[] = (Object.keys(CONDITIONS) as ConditionType[]).filter(
  (type) => type !== 'NodeUnreachable' && type !== 'ClockSkew',
);

export interface Condition {
  readonly type: ConditionType;
  /** Empty for the node, else a device's stable id or a section's name. */
  readonly subject: string;
  readonly effect: ConditionEffect;
  /** A word for machines. */
  readonly reason: string;
  readonly message: string;
}

export function condition(type: ConditionType, subject: string, reason: string, message: string): Condition {
  return { type, subject, effect: CONDITIONS[type].effect, reason, message };
}

export interface ConditionInput {
  /** The last good reading, with the status of the last try. */
  readonly sections: PartialSections;
  /** Every device of the node, gone ones included. */
  readonly devices: readonly Device[];
  readonly faults: readonly GpuFault[];
  readonly hardwareKey: HardwareKey;
}

/** Ordered by type and subject; one per pair. */
export function conditionsOf(input: ConditionInput): Condition[] {
  const found = [
    ...staleness(input.sections),
    ...gpuCounts(input.sections),
    ...gpuStates(input),
    ...migStates(input),
    ...identities(input),
  ];
  const byKey = new Map(found.map((c) => [`${c.type}\0${c.subject}`, c]));
  return [...byKey.keys()].sort().map((key) => byKey.get(key)!);
}

function staleness(sections: PartialSections): Condition[] {
  return SECTION_NAMES.flatMap((name) => {
    const section = sections[name];
    if (section === undefined || section.status === 'ok' || section.status === 'partial') return [];
    // Absent from the beginning is no news; absent with data means that the source went away.
    if (section.status === 'absent' && !holdsData(section)) return [];
    const why = section.problems[0] ?? 'the reading failed';
    return [condition('InventoryStale', name, 'ReadFailed', `section ${name}: ${why}`)];
  });
}

/** Whether a section says anything about the hardware beside its status. */
export function holdsData(section: object): boolean {
  return Object.entries(section).some(
    ([key, v]) => key !== 'status' && key !== 'problems' && v !== undefined && !(Array.isArray(v) && v.length === 0),
  );
}

function gpuCounts(sections: PartialSections): Condition[] {
  const { gpus, pci } = sections;
  const onBus = (pci?.devices ?? []).filter((d) => d.vendor === '10de' && /^03(00|02)/.test(d.class)).length;
  const read = gpus !== undefined && (gpus.status === 'ok' || gpus.status === 'partial');
  if (gpus === undefined || !read) {
    const none = gpus === undefined || gpus.gpus.length === 0;
    return onBus > 0 && none
      ? [condition('GpuDriverMissing', '', 'NoDriver', `${onBus} NVIDIA GPUs on the PCI bus, none answered for`)]
      : [];
  }
  const listed = gpus.gpus.length;
  if (gpus.attached !== undefined && gpus.attached !== listed) {
    return [
      condition('GpuCountMismatch', '', 'Header', `the driver counts ${gpus.attached} GPUs but describes ${listed}`),
    ];
  }
  if (pci?.status === 'ok' && onBus > listed) {
    return [condition('GpuCountMismatch', '', 'Bus', `${onBus} GPUs on the PCI bus, ${listed} known to the driver`)];
  }
  return [];
}

function gpuStates({ sections, devices, faults }: ConditionInput): Condition[] {
  const out: Condition[] = [];
  for (const g of sections.gpus?.gpus ?? []) {
    const name = g.uuid ?? g.pciAddress ?? `index ${g.index}`;
    if (g.uuid === undefined) {
      out.push(condition('GpuIdentityMissing', '', 'NoUuid', `GPU ${name} has no UUID`));
      continue;
    }
    if (g.lost) out.push(condition('GpuLost', g.uuid, 'DriverLostIt', `GPU ${name}: GPU is lost`));
    else if (g.trouble.length > 0) {
      out.push(condition('GpuUnhealthy', g.uuid, 'BadAnswers', `GPU ${name}: ${g.trouble.slice(0, 3).join('; ')}`));
    }
  }
  for (const d of devices) {
    if (d.class === 'gpu' && !d.present) {
      out.push(condition('GpuLost', d.stableId, 'NotListed', `GPU ${d.stableId} is not in the last inventory`));
    }
  }
  for (const f of faults) {
    const type = f.class === 'fatal' ? 'GpuFaultFatal' : 'GpuFaultTransient';
    out.push(condition(type, f.stableId, `XID_${f.code}`, `XID ${f.code}: ${f.doc}`));
  }
  return out;
}

function migStates({ sections, devices }: ConditionInput): Condition[] {
  const out: Condition[] = [];
  const lostOf = (parent: string) =>
    devices.filter((d) => d.class === 'gpu.mig' && !d.present && d.attributes['parent'] === parent).length;
  for (const g of sections.gpus?.gpus ?? []) {
    if (g.uuid === undefined) continue;
    if (partitioned(g) && g.mig.current !== g.mig.pending) {
      out.push(condition('MigModePending', g.uuid, 'Pending', `MIG ${g.mig.current}, ${g.mig.pending} after a reset`));
    }
    const lost = lostOf(g.uuid);
    if (g.mig.current === 'enabled' && g.mig.devices.length === 0) {
      out.push(
        condition('MigLayoutMissing', g.uuid, 'NoInstances', `MIG mode is on without instances; ${lost} are gone`),
      );
    }
    const nameless = g.mig.devices.filter((m) => m.uuid === undefined).length;
    if (g.mig.current === 'enabled' && nameless > 0) {
      out.push(condition('MigIdentityMissing', g.uuid, 'NoUuid', `${nameless} MIG instances have no UUID`));
    }
  }
  return out;
}

function identities({ sections, devices, hardwareKey }: ConditionInput): Condition[] {
  const out: Condition[] = [];
  for (const d of devices) {
    if (!d.present && d.class !== 'gpu' && d.class !== 'node') {
      out.push(
        condition('DeviceMissing', d.stableId, 'NotListed', `${d.class} ${d.stableId} is not in the last inventory`),
      );
    }
    if (d.healthReason === AMBIGUOUS) {
      out.push(condition('DeviceIdentityAmbiguous', d.stableId, 'Duplicate', `${d.class} ${d.stableId}: ${AMBIGUOUS}`));
    }
  }
  const nameless = (sections.disks?.disks ?? []).filter((d) => diskStableId(d) === undefined && d.removable !== true);
  if (nameless.length > 0) {
    const names = nameless.slice(0, 5).map((d) => d.name);
    out.push(condition('DiskIdentityMissing', '', 'NoSerial', `no WWN or serial number: ${names.join(', ')}`));
  }
  if (!hardwareKey.trusted) {
    const why = hardwareKey.rejected.map((r) => `${r.kind} "${r.value}" is ${r.why}`).slice(0, 4);
    const kinds = new Set(hardwareKey.used.map((u) => u.kind)).size;
    const message = `${kinds} of 2 independent identifiers${why.length > 0 ? `: ${why.join('; ')}` : ''}`;
    out.push(condition('HardwareKeyUntrusted', '', 'TooFewIdentifiers', message));
  }
  return out;
}
