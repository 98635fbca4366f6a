/** The road between machine and books: real TLS, real gRPC, real Postgres, the daemon's own core on fake hardware. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '#core/kernel/ids.ts';
import { openRoad, type Road } from '#kit/gateway.ts';
import { compose } from '#services/specs/index.ts';

let road: Road;
beforeAll(async () => {
  road = await openRoad();
});
afterAll(() => road?.close());

const node = async (id: string) =>
  (
    await road.t.db.query<{ epoch: number; connectivity: string; observed_generation: number; gateway_id: string }>(
      'select epoch, connectivity, observed_generation, gateway_id from nodes where id = $1',
      [id],
    )
  )[0]!;
const system = () => ({ db: road.t.db, actor: 'test', admission: { system: 'test' } });

test('a machine joins, opens its session, sends its inventory and converges', async () => {
  const machine = await road.machine(1);
  const { nodeId } = machine.identity;
  await road.until('the node is connected', async () => (await node(nodeId)).connectivity === 'connected');
  await road.until('all sections are stored', async () => {
    const [row] = await road.t.db.query<{ n: number }>('select count(*) as n from node_sections where node_id = $1', [
      nodeId,
    ]);
    return row!.n === 7;
  });
  const devices = await road.t.db.query<{ class: string; health: string; bookable: boolean }>(
    'select class, health, bookable from devices where node_id = $1',
    [nodeId],
  );
  expect(devices.filter((d) => d.class === 'gpu')).toHaveLength(8);
  expect(devices.filter((d) => d.class === 'gpu').every((d) => d.health === 'healthy' && d.bookable)).toBe(true);
  expect(await node(nodeId)).toMatchObject({ epoch: 1, gateway_id: 'test-1' });

  await compose(system(), nodeId);
  await road.until('generation 1 is observed', async () => (await node(nodeId)).observed_generation === 1);
  // Allocations appear in the CDI directory, and what goes away goes away there.
  const [gpu] = await road.t.db.query<{ id: string; stable_id: string }>(
    "select id, stable_id from devices where node_id = $1 and class = 'gpu' order by slot limit 1",
    [nodeId],
  );
  await setSpec(nodeId, 2, [{ id: gpu!.id, class: 'gpu', stableId: gpu!.stable_id }]);
  await road.until('generation 2 is observed', async () => (await node(nodeId)).observed_generation === 2);
  const files = [...(await machine.hands.cdi.list()).values()];
  expect(files).toHaveLength(1);
  expect(files[0]).toContain(gpu!.stable_id);
  await setSpec(nodeId, 3, []);
  await road.until('generation 3 is observed', async () => (await node(nodeId)).observed_generation === 3);
  expect((await machine.hands.cdi.list()).size).toBe(0);
  const events = await road.until('the journal is read', async () => {
    const rows = await road.t.db.query<{ type: string; data: { event?: string } }>(
      'select type, data from events where subject_id = $1 order by xid, seq',
      [nodeId],
    );
    return machine.journal.stats().unacknowledged === 0 && rows.some((r) => r.type === 'node.event') && rows;
  });
  expect(events.map((e) => e.type)).toEqual(
    expect.arrayContaining(['node.joined', 'node.connected', 'node.devices_changed', 'node.event']),
  );
  expect(events.filter((e) => e.type === 'node.event')).toHaveLength(1);
});

/** Writes a spec as composition does, without a reservation behind it. */
async function setSpec(nodeId: string, generation: number, devices: object[]) {
  const { canonicalJson, sha256Hex } = await import('#core/kernel/canonical-json.ts');
  const { composeSpec } = await import('#core/nodes/spec.ts');
  const allocations =
    devices.length === 0
      ? []
      : [{ allocationId: newId('allocation'), reservationId: newId('reservation'), tenantId: road.tenantId, devices }];
  const canonical = canonicalJson(composeSpec(allocations as never) as never);
  await road.t.db.query(
    `insert into node_specs (node_id, generation, spec, canonical, sha256) values ($1, $2, $3, $5, $4)
     on conflict (node_id) do update set generation = $2, spec = $3, canonical = excluded.canonical, sha256 = $4`,
    [nodeId, generation, canonical, sha256Hex(canonical), canonical],
  );
  await road.t.db.query("select pg_notify('node_spec', $1)", [nodeId]);
}

test('a CDI directory that cannot be written holds the generation back, says so, and heals by itself', async () => {
  const machine = await road.machine(2);
  const { nodeId } = machine.identity;
  await road.until('connected', async () => (await node(nodeId)).connectivity === 'connected');
  const gpu = await road.until('devices', async () => {
    const [d] = await road.t.db.query<{ id: string; stable_id: string }>(
      "select id, stable_id from devices where node_id = $1 and class = 'gpu' order by slot limit 1",
      [nodeId],
    );
    return d;
  });
  machine.hands.faults.readOnlyCdi = true;
  await setSpec(nodeId, 1, [{ id: gpu.id, class: 'gpu', stableId: gpu.stable_id }]);
  const conditions = () =>
    road.t.db.query(
      "select subject, effect, reason from node_conditions where node_id = $1 and type = 'SpecNotConverged' order by subject",
      [nodeId],
    );
  await road.until('the failure is known', async () => (await conditions()).length > 0);
  expect(await conditions()).toEqual([
    { subject: '', effect: 'NoSchedule', reason: 'Failed' },
    { subject: 'devices', effect: 'none', reason: 'Failed' },
  ]);
  expect((await node(nodeId)).observed_generation).toBe(0);
  machine.hands.faults.readOnlyCdi = false;
  await road.until('it converged', async () => (await node(nodeId)).observed_generation === 1);
  await road.until('the condition ended', async () => (await conditions()).length === 0);
});

test('a GPU that is lost becomes unhealthy by itself', async () => {
  const machine = await road.machine(3, { daemon: { inventoryEveryMs: 200 } });
  const { nodeId } = machine.identity;
  const healthy = async () =>
    (
      await road.t.db.query<{ n: number }>(
        "select count(*) as n from devices where node_id = $1 and class = 'gpu' and health = 'healthy'",
        [nodeId],
      )
    )[0]!.n;
  await road.until('eight are healthy', async () => (await healthy()) === 8);
  machine.hands.faults.lostGpus.add(3);
  await road.until('seven are healthy', async () => (await healthy()) === 7);
  const [condition] = await road.t.db.query(
    "select type, effect from node_conditions where node_id = $1 and type = 'GpuLost'",
    [nodeId],
  );
  expect(condition).toEqual({ type: 'GpuLost', effect: 'NoSchedule' });
  machine.hands.faults.lostGpus.clear();
  await road.until('eight are healthy again', async () => (await healthy()) === 8);
});
