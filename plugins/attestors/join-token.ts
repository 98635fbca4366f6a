/**
 * Join by token. The token's row is locked before it is looked at, so twenty machines with a token for three leave
 * exactly three admissions. The key that was admitted may ask again for a while, and no use is spent for that: its
 * first answer may have been lost on the way.
 */

import type { Attestation, Attestor, Evidence } from '#core/join/attestor.ts';
import { SAME_ADMISSION_SECONDS } from '#core/join/certificate-policy.ts';
import type { JoinRequest } from '#core/join/evidence.ts';
import { equalSecrets, parseJoinToken } from '#core/join/token.ts';
import type { Sql } from '#core/kernel/database.ts';

interface TokenRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly site_id: string;
  readonly pool_id: string;
  readonly secret_hash: string;
  readonly uses: number;
  readonly max_uses: number;
  readonly expired: boolean;
  readonly revoked: boolean;
}

const UNKNOWN: Attestation = { kind: 'refused', detail: 'the join token is not known' };

export const joinTokenAttestor: Attestor = {
  name: 'join-token',
  concerns: (request: JoinRequest) => request.token !== undefined,

  async attest(tx: Sql, evidence: Evidence): Promise<Attestation> {
    const given = parseJoinToken(evidence.request.token ?? '');
    if (given === undefined) return UNKNOWN;
    const [token] = await tx.query<TokenRow>(
      `select tenant_id, site_id, pool_id, secret_hash, uses, max_uses,
         expires_at <= compute_now() as expired, revoked_at is not null as revoked
       from join_tokens where id = $1 for update`,
      [given.id],
    );
    if (token === undefined) return UNKNOWN;

    const refuse = (detail: string, data: Record<string, string | number | readonly string[]> = {}): Attestation => ({
      kind: 'refused',
      detail,
      record: {
        tenantId: token.tenant_id,
        type: 'compute-join-token',
        id: given.id,
        data: { why: detail, keyHash: evidence.keyHash, requestKey: evidence.request.requestKey, ...data },
      },
    });
    if (!equalSecrets(given.secretHash, token.secret_hash)) {
      const refused = refuse('wrong secret');
      // Said as if there were no such token: a guesser learns nothing about ids.
      return refused.kind === 'refused' ? { ...refused, detail: 'the join token is not known' } : refused;
    }
    if (token.revoked) return refuse('the join token was revoked');

    const [before] = await tx.query<{ node_id: string; recent: boolean }>(
      `select a.node_id, a.at > compute_now() - make_interval(secs => $3) as recent
       from join_admissions a join nodes n on n.id = a.node_id
       where a.token_id = $1 and a.key_hash = $2 and n.state <> 'retired'`,
      [given.id, evidence.keyHash, SAME_ADMISSION_SECONDS],
    );
    const admitted = {
      kind: 'admitted',
      tenantId: token.tenant_id,
      siteId: token.site_id,
      poolId: token.pool_id,
      role: 'node',
      tokenId: given.id,
      by: { type: 'compute-join-token', id: given.id },
    } as const;
    if (before?.recent === true) return { ...admitted, nodeId: before.node_id, repeated: true };
    if (token.expired) return refuse('the join token has expired');
    if (token.uses >= token.max_uses) {
      const users = await tx.query<{ node_id: string }>(
        'select node_id from join_admissions where token_id = $1 order by at desc limit 20',
        [given.id],
      );
      return refuse(`the join token has no use left (${token.uses} of ${token.max_uses})`, {
        usedBy: users.map((u) => u.node_id),
      });
    }
    await tx.query('update join_tokens set uses = uses + 1 where id = $1', [given.id]);
    return { ...admitted, ...(before === undefined ? {} : { nodeId: before.node_id }), repeated: false };
  },
};
