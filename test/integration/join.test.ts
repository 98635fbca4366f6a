/** JoinService over the routes that gateways call, on the real database: what is spent, what is repeated, what is refused. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeAuthority } from '#cli/dev/certificates.ts';
import { fromBase64, sha256, toBase64 } from '#core/join/bytes.ts';
import { type Admission, type JoinRequest, proofMessage } from '#core/join/evidence.ts';
import { makeJoinToken } from '#core/join/token.ts';
import { P256, Pkcs10CertificateRequestGenerator, X509Certificate } from '#core/join/x509.ts';
import { newId } from '#core/kernel/ids.ts';
import { type TestDatabase, testDatabase } from '#kit/database.ts';
import { openAuthority } from '#services/join/index.ts';
import { internalJoin } from '#workers/api/internal-join.ts';

const SECRET = 'gateway-secret';
const tenantId = newId('tenant');
const siteId = newId('site');
const poolId = newId('pool');
let t: TestDatabase;
let app: ReturnType<typeof internalJoin>;

beforeAll(async () => {
  t = await testDatabase({ max: 8 });
  const made = await makeAuthority('test.fleet');
  const ca = await openAuthority({ trustDomain: 'test.fleet', ...made });
  app = internalJoin({ db: t.db, ca, gatewayToken: SECRET });
  await t.db.query("insert into sites (id, tenant_id, name) values ($1, $2, 'here')", [siteId, tenantId]);
  await t.db.query("insert into pools (id, site_id, tenant_id, name, class) values ($1, $2, $3, 'p', 'metal-host')", [
    poolId,
    siteId,
    tenantId,
  ]);
});
afterAll(() => t?.close());

async function token(maxUses = 1, ttl = '1 hour'): Promise<{ id: string; token: string }> {
  const made = makeJoinToken();
  await t.db.query(
    `insert into join_tokens (id, tenant_id, site_id, pool_id, secret_hash, max_uses, expires_at, created_by)
     values ($1, $2, $3, $4, $5, $6, compute_now() + $7::interval, 'me')`,
    [made.id, tenantId, siteId, poolId, made.secretHash, maxUses, ttl],
  );
  return made;
}

type Keys = CryptoKeyPair;
const newKeys = () => crypto.subtle.generateKey(P256, true, ['sign', 'verify']);
async function csrOf(keys: Keys, name = 'CN=whatever'): Promise<string> {
  const csr = await Pkcs10CertificateRequestGenerator.create({ name, keys, signingAlgorithm: P256 });
  return toBase64(csr.rawData);
}
let serials = 0;
const hardware = (n = ++serials) => ({
  serial: `SN-${n}-0815`,
  macs: [`0a:00:00:00:${n >> 8}:${n & 255}`],
  gpuUuids: [],
});
/** Two kinds that survive. */
const machine = (n = ++serials) => ({
  serial: `SERIAL${n}X`,
  productUuid: `4c4c4544-0000-1000-8000-${String(n).padStart(12, '0')}`,
  macs: [],
  gpuUuids: [],
});

async function post(path: string, body: unknown, secret = SECRET): Promise<{ status: number; body: never }> {
  const response = await app.request(`/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', 'x-source-ip': '192.0.2.7' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as never };
}
async function join(
  keys: Keys,
  part: Partial<JoinRequest>,
): Promise<{ status: number; body: Admission & { code: string; detail: string; errors: { field: string }[] } }> {
  return post('join', { csr: await csrOf(keys), requestKey: 'r1', hardware: hardware(), ...part });
}
const usesOf = async (id: string) =>
  (await t.db.query<{ uses: number }>('select uses from join_tokens where id = $1', [id]))[0]!.uses;
const audits = (id: string) =>
  t.db.query<{ outcome: string; data: Record<string, unknown>; context: Record<string, unknown> }>(
    'select outcome, data, context from audit_events where resource_id = $1 order by seq',
    [id],
  );

describe('join by token', () => {
  test('gives a certificate whose every name is ours, and writes the change whole', async () => {
    const made = await token();
    const keys = await newKeys();
    const csr = await csrOf(keys, 'CN=root, OU=site, O=Somebody Else');
    const { status, body } = await join(keys, { csr, token: made.token, summary: { hostname: 'GPU-7.rack.example' } });
    expect(status).toBe(200);
    expect(body).toMatchObject({ outcome: 'joined', role: 'node', siteId });
    const leaf = new X509Certificate(fromBase64(body.chain[0]!));
    expect(leaf.subject).toBe(`OU=node, CN=${body.nodeId}`);
    expect(body.spiffeId).toBe(`spiffe://test.fleet/site/${siteId}/node/${body.nodeId}`);
    expect(leaf.toString('text')).toContain(body.spiffeId);
    expect(leaf.notAfter.getTime() - leaf.notBefore.getTime()).toBeLessThanOrEqual(86_400_000);
    expect(await leaf.verify({ publicKey: new X509Certificate(fromBase64(body.bundle[0]!)) })).toBe(true);
    const [node] = await t.db.query('select name, state, connectivity, pool_id, tenant_id from nodes where id = $1', [
      body.nodeId,
    ]);
    const expected = { name: 'gpu-7', state: 'adopting', connectivity: 'never', pool_id: poolId, tenant_id: tenantId };
    expect(node).toEqual(expected);
    expect(await t.db.query('select type from events where subject_id = $1', [body.nodeId])).toEqual([
      { type: 'node.joined' },
    ]);
    expect(await t.db.query('select kind from work_queue where key = $1 order by kind', [body.nodeId])).toEqual([
      { kind: 'nodes.health' },
      { kind: 'nodes.spec' },
    ]);
    expect(await t.db.query('select parent_id from authz_resources where id = $1', [body.nodeId])).toEqual([
      { parent_id: poolId },
    ]);
    expect((await audits(body.nodeId))[0]).toMatchObject({ outcome: 'system', data: { outcome: 'joined' } });
    expect(await usesOf(made.id)).toBe(1);
  });

  test('the same key gets the same admission without a second use; another key is refused and audited', async () => {
    const made = await token(1);
    const keys = await newKeys();
    const first = await join(keys, { token: made.token, requestKey: 'first' });
    const again = await join(keys, { token: made.token, requestKey: 'first' });
    expect(again.body).toMatchObject({ nodeId: first.body.nodeId, outcome: 'repeated', spiffeId: first.body.spiffeId });
    expect(await usesOf(made.id)).toBe(1);
    const thief = await join(await newKeys(), { token: made.token, requestKey: 'thief' });
    expect(thief).toMatchObject({
      status: 403,
      body: { code: 'JOIN_REFUSED', detail: expect.stringContaining('1 of 1') },
    });
    const refused = (await audits(made.id)).filter((a) => a.outcome === 'deny');
    expect(refused).toHaveLength(1);
    expect(refused[0]!.data).toMatchObject({ usedBy: [first.body.nodeId], requestKey: 'thief' });
    expect(refused[0]!.context).toMatchObject({ sourceIp: '192.0.2.7', system: 'join-token' });
    // Outside the window the same key is a new use, of which there is none.
    await t.db.query("update join_admissions set at = at - interval '11 minutes' where token_id = $1", [made.id]);
    expect((await join(keys, { token: made.token })).body.code).toBe('JOIN_REFUSED');
    expect(await usesOf(made.id)).toBe(1);
  });

  test('20 machines at once with a token for 3: exactly 3 join', async () => {
    const made = await token(3);
    const all = await Promise.all(
      Array.from({ length: 20 }, async () => join(await newKeys(), { token: made.token, hardware: machine() })),
    );
    expect(all.filter((a) => a.status === 200)).toHaveLength(3);
    expect(all.filter((a) => a.status === 403 && a.body.code === 'JOIN_REFUSED')).toHaveLength(17);
    expect(new Set(all.filter((a) => a.status === 200).map((a) => a.body.nodeId)).size).toBe(3);
    expect(await usesOf(made.id)).toBe(3);
    const [nodes] = await t.db.query('select count(*) as n from join_admissions where token_id = $1', [made.id]);
    expect(nodes).toEqual({ n: 3 });
  });

  test('the same key 10 times at once is one admission', async () => {
    const made = await token(10);
    const keys = await newKeys();
    const hw = machine();
    const all = await Promise.all(Array.from({ length: 10 }, () => join(keys, { token: made.token, hardware: hw })));
    expect(all.map((a) => a.status)).toEqual(Array(10).fill(200));
    expect(new Set(all.map((a) => a.body.nodeId)).size).toBe(1);
    expect(await usesOf(made.id)).toBe(1);
  });

  test('expired, revoked, wrong secret, unknown: refused, and only what may be known is said', async () => {
    const expired = await token(1, '-1 second');
    expect((await join(await newKeys(), { token: expired.token })).body).toMatchObject({
      code: 'JOIN_REFUSED',
      detail: 'the join token has expired',
    });
    const revoked = await token();
    await t.db.query('update join_tokens set revoked_at = compute_now() where id = $1', [revoked.id]);
    expect((await join(await newKeys(), { token: revoked.token })).body.detail).toBe('the join token was revoked');
    const real = await token();
    const other = makeJoinToken();
    const wrong = await join(await newKeys(), { token: `${real.id}.${other.token.split('.')[1]}` });
    const unknown = await join(await newKeys(), { token: other.token });
    expect(wrong.body.detail).toBe(unknown.body.detail);
    expect((await audits(real.id))[0]).toMatchObject({ outcome: 'deny', data: { why: 'wrong secret' } });
    for (const made of [expired, revoked, real]) expect(await usesOf(made.id)).toBe(0);
    expect((await join(await newKeys(), { token: 'nonsense' })).body.code).toBe('JOIN_REFUSED');
  });

  test('a machine that comes back with trusted hardware gets its node; placeholders never match', async () => {
    const made = await token(10);
    const hw = machine();
    const old = await newKeys();
    const first = await join(old, { token: made.token, hardware: hw });
    const back = await join(await newKeys(), { token: made.token, hardware: hw });
    expect(back.body).toMatchObject({ nodeId: first.body.nodeId, outcome: 'returned' });
    const revoked = await t.db.query(
      'select serial from node_certificates where node_id = $1 and revoked_at is not null',
      [first.body.nodeId],
    );
    expect(revoked).toHaveLength(1);
    const blank = { serial: 'To be filled by O.E.M.', macs: ['0a:11:22:33:44:55'], gpuUuids: [] };
    const [a, b] = [
      await join(await newKeys(), { token: made.token, hardware: blank }),
      await join(await newKeys(), { token: made.token, hardware: blank }),
    ];
    expect(a.body.nodeId).not.toBe(b.body.nodeId);
    const [node] = await t.db.query('select hardware_key_trusted as trusted from nodes where id = $1', [a.body.nodeId]);
    expect(node).toEqual({ trusted: false });
  });

  test('the identity of a machine that is connected cannot be taken, and the token keeps its use', async () => {
    const made = await token(5);
    const hw = machine();
    const first = await join(await newKeys(), { token: made.token, hardware: hw });
    await t.db.query("update nodes set connectivity = 'connected' where id = $1", [first.body.nodeId]);
    const second = await join(await newKeys(), { token: made.token, hardware: hw });
    expect(second).toMatchObject({ status: 409, body: { code: 'CONFLICT' } });
    expect(await usesOf(made.id)).toBe(1);
  });

  test('machines of one name are told apart', async () => {
    const made = await token(5);
    const summary = { hostname: 'twin' };
    const [a, b] = [
      await join(await newKeys(), { token: made.token, summary }),
      await join(await newKeys(), { token: made.token, summary }),
    ];
    const names = await t.db.query<{ name: string }>('select name from nodes where id = any($1) order by joined_at', [
      [a.body.nodeId, b.body.nodeId],
    ]);
    expect(names.map((n) => n.name)).toEqual(['twin', `twin-${b.body.nodeId.slice(-8)}`]);
  });
});

describe('bad input', () => {
  test('a CSR that is none, of another key, or not signed by its key', async () => {
    const made = await token();
    const field = { status: 400, body: { code: 'INVALID_REQUEST', errors: [{ field: 'csr' }] } };
    expect(await join(await newKeys(), { token: made.token, csr: 'AAAA' })).toMatchObject(field);
    const p384 = { name: 'ECDSA', namedCurve: 'P-384', hash: 'SHA-384' } as const;
    const big = await crypto.subtle.generateKey(p384, true, ['sign', 'verify']);
    const other = await Pkcs10CertificateRequestGenerator.create({ name: 'CN=x', keys: big, signingAlgorithm: p384 });
    expect(await join(await newKeys(), { token: made.token, csr: toBase64(other.rawData) })).toMatchObject(field);
    const bent = fromBase64(await csrOf(await newKeys()));
    bent[bent.length - 1]! ^= 1;
    expect(await join(await newKeys(), { token: made.token, csr: toBase64(bent) })).toMatchObject(field);
    expect(await usesOf(made.id)).toBe(0);
  });
  test('no evidence, two kinds of it, no JSON, no credential', async () => {
    const made = await token();
    const proof = { certificate: 'AAAA', challenge: 'x', signature: 'AAAA' };
    const field = { status: 400, body: { errors: [{ field: 'evidence' }] } };
    expect(await join(await newKeys(), {})).toMatchObject(field);
    expect(await join(await newKeys(), { token: made.token, proof })).toMatchObject(field);
    expect(await post('join', '{')).toMatchObject({ status: 400, body: { errors: [{ field: 'body' }] } });
    for (const secret of ['', 'x', `${SECRET}x`, SECRET.toUpperCase()]) {
      expect(await post('join', {}, secret)).toMatchObject({ status: 401, body: { code: 'UNAUTHENTICATED' } });
    }
  });
});

describe('back after the certificate ran out', () => {
  async function prove(earlier: Keys, chain: string, next: Keys, challenge?: string) {
    const text = challenge ?? ((await post('challenge', {})) as { body: { challenge: string } }).body.challenge;
    const csr = await csrOf(next);
    const message = proofMessage(text, await sha256(fromBase64(csr)));
    const signature = toBase64(await crypto.subtle.sign(P256, earlier.privateKey, message));
    return { csr, proof: { certificate: chain, challenge: text, signature } };
  }
  async function expiredNode() {
    const made = await token();
    const [keys, hw] = [await newKeys(), machine()];
    const { body } = await join(keys, { token: made.token, hardware: hw });
    await t.db.query("update node_certificates set not_after = compute_now() - interval '3 days' where node_id = $1", [
      body.nodeId,
    ]);
    return { keys, hw, chain: body.chain[0]!, nodeId: body.nodeId };
  }

  test('the key proves itself and keeps the node id, also when the first answer was lost', async () => {
    const old = await expiredNode();
    const next = await newKeys();
    for (const _ of [1, 2]) {
      const evidence = await prove(old.keys, old.chain, next);
      const back = await join(next, { ...evidence, hardware: old.hw });
      expect(back.body).toMatchObject({ nodeId: old.nodeId, outcome: 'returned' });
    }
  });

  test('the certificate alone, a foreign key, a stale challenge, moved hardware: refused', async () => {
    const old = await expiredNode();
    const next = await newKeys();
    const refused = (detail: string) => ({
      status: 403,
      body: { code: 'JOIN_REFUSED', detail: expect.stringContaining(detail) },
    });
    const foreign = await prove(await newKeys(), old.chain, next);
    expect(await join(next, { ...foreign, hardware: old.hw })).toMatchObject(refused('not proven'));
    const good = await prove(old.keys, old.chain, next);
    const unsigned = { ...good.proof, signature: toBase64(new Uint8Array(64)) };
    expect(await join(next, { csr: good.csr, proof: unsigned, hardware: old.hw })).toMatchObject(refused('not proven'));
    // A proof that somebody read is worth nothing for another key.
    const thief = await newKeys();
    expect(await join(thief, { csr: await csrOf(thief), proof: good.proof, hardware: old.hw })).toMatchObject(
      refused('not proven'),
    );
    const made = await prove(old.keys, old.chain, next, `1.${'0'.repeat(32)}.${'A'.repeat(43)}=`);
    expect(await join(next, { ...made, hardware: old.hw })).toMatchObject(refused('challenge'));
    expect(await join(next, { ...good, hardware: machine() })).toMatchObject(refused('not the hardware'));
    await t.db.query("select transition_node($1, 'retire', 'test', null, null)", [old.nodeId]);
    expect(await join(next, { ...good, hardware: old.hw })).toMatchObject(refused('retired'));
  });

  test('renewal wants a valid certificate and the newest session', async () => {
    const made = await token();
    const { body } = await join(await newKeys(), { token: made.token });
    const serial = new X509Certificate(fromBase64(body.chain[0]!)).serialNumber.toLowerCase();
    await t.db.query('update nodes set epoch = 7 where id = $1', [body.nodeId]);
    const ask = async (epoch: number) =>
      post('renew', { nodeId: body.nodeId, serial, epoch, csr: await csrOf(await newKeys()) });
    expect(await ask(6)).toMatchObject({ status: 409, body: { code: 'STALE_EPOCH' } });
    const renewed = await ask(7);
    expect(renewed.status).toBe(200);
    const leaf = new X509Certificate(fromBase64((renewed.body as { chain: string[] }).chain[0]!));
    expect(leaf.subject).toBe(`OU=node, CN=${body.nodeId}`);
    await t.db.query('update node_certificates set not_after = compute_now() where serial = $1', [serial]);
    expect(await ask(7)).toMatchObject({
      status: 403,
      body: { code: 'JOIN_REFUSED', detail: 'the certificate has expired' },
    });
  });
});
