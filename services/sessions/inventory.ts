/**
 * Inventory as it arrives: sections are stored under their hashes, and what they say (devices, conditions, faults, the
 * hardware key) is derived anew by the pure review. Nothing here decides; a device that left stays as gone.
 */
import {
  type Device,
  type GpuFault,
  hashSection,
  INVENTORY_CONDITIONS,
  isSectionName,
  type PartialSections,
  type PoolClass,
  parseSection,
  type Review,
  reviewInventory,
  type SectionName,
} from '#core/inventory/index.ts';
import { problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import { type MutationContext, mutate, type Tx } from '#db/mutate.ts';
import { type GatewayContext, mutationOf } from './context.ts';
import * as devices from './device-queries.ts';
import * as sql from './queries.ts';

export interface ReportedSection {
  readonly name: string;
  readonly hash: string;
  /** Parsed JSON. */
  readonly data: unknown;
}

/**
 * Stores sections under the epoch of the session that sent them. Throws STALE_EPOCH, and INVALID_REQUEST for a section
 * that does not parse or whose hash is not that of its content. Sections of a later version are left alone.
 * Answers the hashes that are stored now.
 */
export async function storeInventorySections(
  ctx: GatewayContext,
  nodeId: string,
  epoch: number,
  reported: readonly ReportedSection[],
): Promise<Record<string, string>> {
  const incoming: Record<string, unknown> = {};
  const hashes: Record<string, string> = {};
  for (const { name, hash, data } of reported) {
    if (!isSectionName(name)) continue;
    const section = parseSection(name, data);
    const actual = hashSection(name, section);
    if (actual !== hash) {
      const field = `inventory.${name}.hash`;
      throw problem('INVALID_REQUEST', `inventory section "${name}" does not have the hash it came with`, {
        errors: [{ field, message: `expected ${actual}` }],
      });
    }
    incoming[name] = section;
    hashes[name] = actual;
  }
  if (Object.keys(hashes).length === 0) return {};
  await mutate(mutationOf(ctx), async (tx) => {
    const review = await reviewNode(tx, nodeId, epoch, incoming as PartialSections);
    if (review === undefined) throw problem('STALE_EPOCH', `node ${nodeId} has a newer session than epoch ${epoch}`);
    for (const name of Object.keys(hashes) as SectionName[]) {
      await devices.storeSection(tx, nodeId, name, hashes[name]!, review.sections[name], incoming[name]);
    }
  });
  return hashes;
}

/**
 * Looks again at what is stored, for conditions that end by themselves (a driver error that stayed alone for ten
 * minutes). Answers when to look next; undefined when there is nothing to wait for or no such node.
 */
export function reviewStoredInventory(ctx: MutationContext, nodeId: string): Promise<string | undefined> {
  return mutate(ctx, async (tx) => (await reviewNode(tx, nodeId, null, {}))?.recheckAt);
}

async function reviewNode(
  tx: Tx,
  nodeId: string,
  epoch: number | null,
  incoming: PartialSections,
): Promise<Review | undefined> {
  await sql.lockCapacity(tx, [nodeId]);
  const node = await sql.lockNode(tx, nodeId, epoch);
  if (node === undefined) return undefined;
  const known = (await devices.sections(tx, nodeId)) as PartialSections;
  const review = await reviewInventory({
    known,
    incoming,
    devices: await devices.devicesOfNode(tx, nodeId),
    faults: node.gpu_faults as unknown as GpuFault[],
    poolClass: node.pool_class as PoolClass,
    now: node.now,
    steady: node.steady,
  });
  const changed = await devices.storeDevices(tx, nodeId, node.pool_id, review.devices, () => newId('device'));
  for (const d of changed) project(tx, nodeId, node, d);
  await sql.replaceConditions(tx, nodeId, INVENTORY_CONDITIONS, review.conditions);
  await devices.storeFindings(tx, nodeId, review.faults, review.hardwareKey);
  await sql.refresh(tx, [nodeId]);
  if (changed.length > 0) {
    tx.emit({
      type: 'node.devices_changed',
      tenantId: node.tenant_id,
      kind: 'node',
      id: nodeId,
      data: {
        id: nodeId,
        name: node.name,
        devices: changed.slice(0, 64).map((d) => ({
          id: d.id,
          class: d.class,
          stableId: d.stableId,
          health: d.health,
          present: d.present,
          ...(d.healthReason === undefined ? {} : { reason: d.healthReason }),
        })),
      },
    });
  }
  tx.wake('nodes.health', nodeId);
  if (review.recheckAt !== undefined) tx.wake('nodes.inventory', nodeId, review.recheckAt);
  tx.wake('nodes.spec', nodeId);
  return review;
}

function project(tx: Tx, nodeId: string, node: sql.NodeRow, d: Device & { readonly id: string }): void {
  const { model, memory } = d.attributes;
  tx.project({
    type: 'compute-device',
    id: d.id,
    tenantId: node.tenant_id,
    parentType: 'compute-node',
    parentId: nodeId,
    attributes: {
      class: d.class,
      node: nodeId,
      pool: node.pool_id,
      site: node.site_id,
      region: node.region ?? undefined,
      model: typeof model === 'string' ? model : undefined,
      memoryBytes: typeof memory === 'number' ? memory : undefined,
    },
  });
}
