/**
 * JoinService: admits machines. Evidence is checked by an attestor, the node row is made or found again, and the
 * certificate is signed, in one transaction: an admission that was not stored was not given, and a use of a token is
 * spent exactly when it was. Signing inside the transaction is a millisecond of local work, not a call.
 */
import { hardwareKey } from '#core/inventory/hardware-key.ts';
import type { Admitted, Attestor, Evidence } from '#core/join/attestor.ts';
import { isNodeRole, REJOIN_WINDOW_SECONDS } from '#core/join/certificate-policy.ts';
import type { Admission, Certificate, JoinRequest, RenewRequest } from '#core/join/evidence.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import type { Database } from '#core/kernel/database.ts';
import { isProblem, type Problem, problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import { type MutationContext, mutate, read, type Tx } from '#db/mutate.ts';
import { type Authority, signNodeCertificate, type VerifiedRequest, verifyRequest } from './certificate.ts';
import { challengeStands, makeChallenge } from './challenge.ts';
import { nodeNames } from './node-name.ts';
import * as sql from './queries.ts';

export { type Authority, openAuthority } from './certificate.ts';

export interface JoinContext {
  readonly db: Database;
  readonly authority: Authority;
  readonly attestors: readonly Attestor[];
  readonly poke?: MutationContext['poke'];
}

export interface JoinOrigin {
  readonly requestId: string;
  readonly sourceIp?: string;
  /** The gateway that handed the request on. */
  readonly gateway?: string;
}

function mutationOf(ctx: JoinContext, origin: JoinOrigin, system: string): MutationContext {
  return {
    db: ctx.db,
    actor: 'join',
    admission: { requestId: origin.requestId, system },
    ...(ctx.poke === undefined ? {} : { poke: ctx.poke }),
  };
}

export async function challenge(ctx: JoinContext): Promise<{ challenge: string }> {
  const [row] = await read<{ now: string }>(ctx.db, 'select compute_now() as now');
  return { challenge: await makeChallenge(ctx.authority, row!.now) };
}

/** Admits a machine. Throws JOIN_REFUSED with what the machine may know, INVALID_REQUEST for a bad CSR. */
export async function join(ctx: JoinContext, request: JoinRequest, origin: JoinOrigin): Promise<Admission> {
  const offered = ctx.attestors.filter((a) => a.concerns(request));
  const [attestor] = offered;
  if (attestor === undefined || offered.length > 1) {
    const message = `expected exactly one kind of evidence of ${ctx.attestors.map((a) => a.name).join(', ')}`;
    throw problem('INVALID_REQUEST', message, { errors: [{ field: 'evidence', message }] });
  }
  const csr = await verifyRequest(request.csr);
  const hardware = await hardwareKey(request.hardware);
  const answer = await mutate(mutationOf(ctx, origin, attestor.name), async (tx): Promise<Admission | Problem> => {
    const clock = await sql.clock(tx);
    const evidence: Evidence = {
      request,
      hardware,
      clock,
      keyHash: csr.keyHash,
      csrDigest: csr.digest,
      ...(origin.sourceIp === undefined ? {} : { sourceIp: origin.sourceIp }),
      challengeStands: (text) => challengeStands(ctx.authority, text, clock.now),
    };
    const attestation = await attestor.attest(tx, evidence);
    if (attestation.kind === 'refused') {
      const { record, detail } = attestation;
      if (record !== undefined) {
        const context = { system: attestor.name, ...origin } as Json;
        await sql.auditRefusal(tx, { ...record, context, data: (record.data ?? {}) as Json });
      }
      return problem('JOIN_REFUSED', detail);
    }
    return admit(tx, ctx, attestation, evidence, csr, origin);
  });
  // The refusal has its audit record, so it had to commit first.
  if (isProblem(answer)) throw answer;
  return answer;
}

async function admit(
  tx: Tx,
  ctx: JoinContext,
  admitted: Admitted,
  evidence: Evidence,
  csr: VerifiedRequest,
  origin: JoinOrigin,
): Promise<Admission> {
  const { request, hardware } = evidence;
  const found = await findNode(tx, admitted, evidence);
  const facts: sql.NodeFacts = {
    id: found?.id ?? newId('node'),
    tenantId: admitted.tenantId,
    siteId: admitted.siteId,
    poolId: admitted.poolId,
    role: admitted.role,
    hardwareKey: hardware.used.length === 0 ? null : hardware.key,
    hardwareKeyTrusted: hardware.trusted,
    hardware: { ...request.summary, used: hardware.used, rejected: hardware.rejected } as unknown as Json,
  };
  let name = found?.name;
  if (found === undefined) {
    name = await sql.insertNode(tx, facts, nodeNames(request.summary.hostname, facts.id));
    const pool = await sql.poolOf(tx, admitted.poolId);
    tx.project({
      type: 'compute-node',
      id: facts.id,
      tenantId: facts.tenantId,
      parentType: 'compute-pool',
      parentId: facts.poolId,
      attributes: {
        name,
        pool: facts.poolId,
        site: facts.siteId,
        class: pool?.class,
        model: pool?.gpu_model ?? undefined,
        region: pool?.iam_region ?? undefined,
        state: 'adopting',
      },
    });
  } else if (!admitted.repeated) {
    await sql.rejoined(tx, facts);
    // A key that proved itself stays good: the answer to the proof may be lost, and then it must prove itself again.
    if (admitted.tokenId !== undefined) await sql.revokeOtherKeys(tx, facts.id, csr.keyHash);
  }
  if (admitted.tokenId !== undefined && !admitted.repeated) {
    await sql.rememberAdmission(tx, {
      tokenId: admitted.tokenId,
      keyHash: csr.keyHash,
      nodeId: facts.id,
      sourceIp: origin.sourceIp ?? null,
    });
  }
  const signed = await signNodeCertificate(
    ctx.authority,
    { nodeId: facts.id, siteId: facts.siteId, role: admitted.role },
    csr.publicKey,
    evidence.clock,
  );
  await sql.insertCertificate(tx, {
    id: newId('certificate'),
    nodeId: facts.id,
    serial: signed.serial,
    keyHash: csr.keyHash,
    role: admitted.role,
    notBefore: signed.notBefore,
    notAfter: signed.notAfter,
  });
  const outcome = found === undefined ? 'joined' : admitted.repeated ? 'repeated' : 'returned';
  if (outcome !== 'repeated') {
    tx.emit({
      type: outcome === 'joined' ? 'node.joined' : 'node.returned',
      tenantId: facts.tenantId,
      kind: 'node',
      id: facts.id,
      data: { id: facts.id, name, poolId: facts.poolId, siteId: facts.siteId, trusted: hardware.trusted },
    });
    tx.wake('nodes.spec', facts.id);
    tx.wake('nodes.health', facts.id);
  }
  tx.audit({
    tenantId: facts.tenantId,
    action: 'compute:nodes:join',
    type: 'compute-node',
    id: facts.id,
    data: {
      outcome,
      by: admitted.by,
      serial: signed.serial,
      requestKey: request.requestKey,
      sourceIp: origin.sourceIp,
      gateway: origin.gateway,
    },
  });
  const { serial: _, ...certificate } = signed;
  return { ...certificate, nodeId: facts.id, siteId: facts.siteId, role: admitted.role, outcome };
}

/** The row that this admission is about, locked; undefined when a new one is to be made. */
async function findNode(tx: Tx, admitted: Admitted, { hardware }: Evidence): Promise<sql.NodeRow | undefined> {
  if (admitted.nodeId !== undefined) return sql.lockNode(tx, admitted.nodeId);
  if (!hardware.trusted) return undefined;
  await sql.lockHardwareKey(tx, hardware.key);
  const found = await sql.lockByHardwareKey(tx, hardware.key, admitted.poolId);
  if (found?.connectivity === 'connected') {
    // Thrown, not returned: the use of the token that was just counted is rolled back with it.
    const hint = 'if it is this machine, stop its daemon and join again in a minute';
    throw problem('CONFLICT', `a machine with this hardware identity is connected as node ${found.name}; ${hint}`);
  }
  return found;
}

/**
 * A new certificate for the node of a standing session. Throws STALE_EPOCH for a session that was replaced,
 * JOIN_REFUSED for a node or certificate that is worth nothing any more.
 */
export async function renew(ctx: JoinContext, request: RenewRequest, origin: JoinOrigin): Promise<Certificate> {
  const csr = await verifyRequest(request.csr);
  return mutate(mutationOf(ctx, origin, 'renewal'), async (tx) => {
    const clock = await sql.clock(tx);
    const node = await sql.lockNode(tx, request.nodeId);
    const current = await sql.certificate(tx, request.serial);
    if (node === undefined || current?.node_id !== request.nodeId || !isNodeRole(current.role)) {
      throw problem('JOIN_REFUSED', 'the certificate is not one of this node');
    }
    if (node.state === 'retired') throw problem('JOIN_REFUSED', 'the node was retired');
    if (current.revoked) throw problem('JOIN_REFUSED', 'the certificate was revoked');
    // What has expired proves nothing: the machine has to prove its key anew by joining.
    if (current.expired) throw problem('JOIN_REFUSED', 'the certificate has expired');
    if (node.epoch !== request.epoch)
      throw problem('STALE_EPOCH', `the node has a newer session than ${request.epoch}`);
    const name = { nodeId: node.id, siteId: node.site_id, role: current.role };
    const signed = await signNodeCertificate(ctx.authority, name, csr.publicKey, clock);
    await sql.forgetOldCertificates(tx, node.id, REJOIN_WINDOW_SECONDS);
    await sql.insertCertificate(tx, {
      id: newId('certificate'),
      nodeId: node.id,
      serial: signed.serial,
      keyHash: csr.keyHash,
      role: current.role,
      notBefore: signed.notBefore,
      notAfter: signed.notAfter,
    });
    tx.audit({
      tenantId: node.tenant_id,
      action: 'compute:nodes:renewCertificate',
      type: 'compute-node',
      id: node.id,
      data: { serial: signed.serial, before: request.serial, notAfter: signed.notAfter },
    });
    const { serial: _serial, spiffeId: _uri, ...certificate } = signed;
    return certificate;
  });
}
