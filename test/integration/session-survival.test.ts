/**
 * Losing things: the gateway, the database, the certificate, time. What must hold in the end is always the same: the
 * node keeps its id and what it holds, comes back under a higher epoch, and nobody needs a person.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadIdentity, saveIdentity } from '#bcd/journal/identity.ts';
import { fromPem } from '#core/join/bytes.ts';
import { X509Certificate } from '#core/join/x509.ts';
import { fromMillis, systemClock } from '#core/kernel/time.ts';
import { certificateFor } from '#kit/certificates.ts';
import { type Machine, openRoad, type Road } from '#kit/gateway.ts';
import { openPg } from '#plugins/database/node-postgres.ts';
import { openAuthority } from '#services/join/index.ts';
import { compose } from '#services/specs/index.ts';

let road: Road;
beforeAll(async () => {
  road = await openRoad({ leaseSeconds: 3, heartbeatSeconds: 1 });
});
afterAll(() => road?.close());

const node = async (id: string) =>
  (
    await road.t.db.query<{ epoch: number; connectivity: string; observed_generation: number }>(
      'select epoch, connectivity, observed_generation from nodes where id = $1',
      [id],
    )
  )[0]!;
const up = (m: Machine, epoch = 1) =>
  road.until(`${m.identity.nodeId} is up`, async () => {
    const n = await node(m.identity.nodeId);
    return n.connectivity === 'connected' && n.epoch >= epoch;
  });
const compositions = { actor: 'test', admission: { system: 'test' } };
const eventTypes = async (id: string) =>
  (await road.t.db.query<{ type: string }>('select type from events where subject_id = $1', [id])).map((e) => e.type);

test('a gateway that stops says goodbye, and the fleet moves to its successor without being unreachable', async () => {
  const made = await road.token(4);
  const fleet = await Promise.all([11, 12, 13, 14].map((n) => road.machine(n, { token: made.token })));
  for (const m of fleet) await up(m);
  await road.gateway.stop();
  road.gateway = await road.start();
  for (const m of fleet) await up(m, 2);
  for (const m of fleet) {
    expect(await eventTypes(m.identity.nodeId)).not.toContain('node.unreachable');
    expect(m.log.some((l) => l.about['reason'] === 'draining')).toBe(true);
    await m.stop();
  }
  const nodes = await Promise.all(fleet.map((m) => node(m.identity.nodeId)));
  expect(nodes.every((n) => n.epoch === 2)).toBe(true);
});

test('a daemon that stops says so, and is unreachable without waiting for a lease', async () => {
  const machine = await road.machine(15);
  await up(machine);
  await machine.stop();
  await road.until('unreachable', async () => (await node(machine.identity.nodeId)).connectivity === 'unreachable');
});

test('a second process with the gateway id fences the first', async () => {
  let fenced = false;
  const options = {
    leaseSeconds: 3,
    heartbeatSeconds: 1,
    onFenced: () => {
      fenced = true;
    },
  };
  const id = 'twin';
  const first = await road.start({ gatewayId: id, sessionPort: 0, joinPort: 0 }, options);
  await road.until('the lease is taken', async () => first.notReady() === undefined);
  const second = await road.start({ gatewayId: id, sessionPort: 0, joinPort: 0 }, { leaseSeconds: 3 });
  await road.until('it has the lease', async () => second.notReady() === undefined);
  await road.until('the first is fenced', async () => fenced);
  const [lease] = await road.t.db.query<{ epoch: number }>("select epoch from leases where name = 'gateway:twin'");
  expect(lease!.epoch).toBe(2);
  await first.stop();
  await second.stop();
});

describe('the database goes away', () => {
  test('killed connections: sessions stand, nothing is unreachable, and work goes on', async () => {
    const machine = await road.machine(16);
    await up(machine);
    const { nodeId } = machine.identity;
    const admin = openPg(road.t.url, { max: 1 });
    for (let round = 0; round < 3; round++) {
      await admin.query(
        'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
      );
      await systemClock.sleep(300);
    }
    await admin.close();
    await road.until('the spec is observed', async () => {
      await compose({ db: road.t.db, ...compositions }, nodeId);
      return (await node(nodeId)).observed_generation > 0;
    });
    expect(await node(nodeId)).toMatchObject({ epoch: 1, connectivity: 'connected' });
    expect(await eventTypes(nodeId)).not.toContain('node.unreachable');
    await machine.stop();
  });

  test('no connection for longer than a lease: sessions stand, readiness goes red and green again, the books catch up', async () => {
    const machine = await road.machine(17);
    await up(machine);
    const { nodeId } = machine.identity;
    const name = new URL(road.t.url).pathname.slice(1);
    const adminUrl = new URL(road.t.url);
    adminUrl.pathname = '/postgres';
    const admin = openPg(adminUrl.href, { max: 1 });
    await admin.query(`alter database ${name} allow_connections false`);
    await admin.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [name]);
    await road.until('red', async () => road.gateway.notReady() !== undefined);
    expect(road.gateway.metrics()['sessions']).toBe(1);
    await admin.query(`alter database ${name} allow_connections true`);
    await admin.close();
    await road.until('green', async () => road.gateway.notReady() === undefined);
    // What a reconciler does that believes the gateway dead must be put right by the session that stands.
    await road.t.db.query("update nodes set connectivity = 'unreachable' where id = $1", [nodeId]);
    await up(machine);
    expect(machine.epochs).toEqual([1]);
    await machine.stop();
  }, 90_000);
});

describe('certificates end', () => {
  test('renewed in the session at two thirds of its life, and used for the next one', async () => {
    const machine = await road.machine(18);
    await up(machine);
    await machine.stop();
    // The same key in the books, but a certificate that is almost over.
    const authority = await openAuthority({ trustDomain: 'test.fleet', ...road.ca });
    const { nodeId } = machine.identity;
    const old = await certificateFor(
      authority,
      { nodeId, siteId: road.siteId, role: 'node' },
      fromMillis(systemClock.now() - 20 * 3_600_000),
    );
    await enter(nodeId, old);
    const ends = fromMillis(new X509Certificate(fromPem('CERTIFICATE', old.certificatePem)[0]!).notAfter.getTime());
    await saveIdentity(machine.directory, { ...machine.identity, ...pair(old), notAfter: ends });
    const again = await road.machine(18);
    await road.until('renewed', async () => again.log.some((l) => l.message === 'certificate renewed'));
    await again.stop();
    const kept = await loadIdentity(machine.directory);
    expect(kept!.privateKeyPem).not.toBe(old.privateKeyPem);
    expect(Date.parse(kept!.notAfter) - systemClock.now()).toBeGreaterThan(20 * 3_600_000);
    const third = await road.machine(18);
    await up(third, 3);
    await third.stop();
  });

  test('ran out while the machine was off: it proves its key, keeps its node id and what it held', async () => {
    const machine = await road.machine(19);
    await up(machine);
    const { nodeId } = machine.identity;
    await compose({ db: road.t.db, ...compositions }, nodeId);
    await road.until('observed', async () => (await node(nodeId)).observed_generation === 1);
    await machine.stop();
    const authority = await openAuthority({ trustDomain: 'test.fleet', ...road.ca });
    const expired = await certificateFor(
      authority,
      { nodeId, siteId: road.siteId, role: 'node' },
      fromMillis(systemClock.now() - 3 * 86_400_000),
    );
    await enter(nodeId, expired, '-2 days');
    const before = fromMillis(systemClock.now() - 2 * 86_400_000);
    await saveIdentity(machine.directory, { ...machine.identity, ...pair(expired), notAfter: before });
    const back = await road.machine(19);
    await road.until('it is back', async () => back.epochs.length > 0);
    expect(back.epochs).toEqual([2]);
    expect(back.log.map((l) => l.message)).toContain('joined again by the old key');
    const identity = await loadIdentity(machine.directory);
    expect(identity!.nodeId).toBe(nodeId);
    expect(await node(nodeId)).toMatchObject({ connectivity: 'connected', observed_generation: 1 });
    await back.stop();
  });

  test('a machine whose key is worth nothing any more does not hammer the door', async () => {
    const machine = await road.machine(21);
    await up(machine);
    await machine.stop();
    await road.t.db.query('update node_certificates set revoked_at = compute_now() where node_id = $1', [
      machine.identity.nodeId,
    ]);
    const back = await road.machine(21);
    await road.until('it was told', async () => back.log.some((l) => l.about['code'] === 'JOIN_REFUSED'));
    const said = back.log.length;
    await systemClock.sleep(3_000);
    expect(back.log.length).toBe(said);
    await back.stop();
  });
});

/** Puts a certificate into the books as JoinService would have. */
async function enter(nodeId: string, made: { serial: string; certificatePem: string }, ends = '1 hour') {
  const { sha256 } = await import('#core/join/bytes.ts');
  const certificate = new X509Certificate(fromPem('CERTIFICATE', made.certificatePem)[0]!);
  const keyHash = await sha256(new Uint8Array(certificate.publicKey.rawData));
  await road.t.db.query(
    `insert into node_certificates (id, node_id, serial, key_hash, role, not_before, not_after)
     values ($1, $2, $3, $4, 'node', compute_now() - interval '4 days', compute_now() + $5::interval)`,
    [`crt_${made.serial}`, nodeId, made.serial, keyHash, ends],
  );
}
const pair = ({ privateKeyPem, certificatePem }: { privateKeyPem: string; certificatePem: string }) => ({
  privateKeyPem,
  certificatePem,
});

test('a herd is held before TLS: every machine gets in, none is turned away, at no more than the rate', async () => {
  const gateway = await road.start(
    { gatewayId: 'narrow', sessionPort: 0, joinPort: 0, connectsPerSecond: 20 },
    { leaseSeconds: 30, heartbeatSeconds: 10 },
  );
  const made = await road.token(40);
  const fleet = await Promise.all(Array.from({ length: 40 }, (_, i) => road.machine(100 + i, { token: made.token })));
  for (const m of fleet) await m.stop();
  const address = `127.0.0.1:${gateway.sessionPort}`;
  for (const m of fleet) await saveIdentity(m.directory, { ...m.identity, gateways: [address] });
  const started = systemClock.now();
  const back = await Promise.all(fleet.map((_, i) => road.machine(100 + i)));
  await road.until('all are back', async () => gateway.metrics()['sessions'] === 40);
  const seconds = (systemClock.now() - started) / 1000;
  const { connections_admitted_total: admitted, connections_turned_away_total: away } = gateway.metrics();
  // A burst of a fifth of a second is free; after that the bucket decides.
  expect(admitted! - 4).toBeLessThanOrEqual(20 * seconds + 1);
  expect(away).toBe(0);
  await Promise.all(back.map((m) => m.stop()));
  await gateway.stop();
}, 90_000);
