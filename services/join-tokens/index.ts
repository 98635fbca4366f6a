/** Join tokens: making, listing and revoking them. Checking one is JoinService's (services/join). */
import { makeJoinToken } from '#core/join/token.ts';
import type { joinTokenOperations } from '#core/join-tokens/contract.ts';
import type { Sql } from '#core/kernel/database.ts';
import type { Output } from '#core/kernel/operations.ts';
import type { Instant } from '#core/kernel/time.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { type After, keysetOrder, keysetPage, notFound, performOnce, requireCollection } from '../verbs.ts';

type View = Output<(typeof joinTokenOperations)['joinTokens.revoke']>;

interface TokenRow extends Record<string, unknown> {
  readonly id: string;
  readonly tenant_id: string;
  readonly site_id: string;
  readonly pool_id: string;
  readonly name: string | null;
  readonly max_uses: number;
  readonly uses: number;
  readonly expires_at: Instant;
  readonly revoked_at: Instant | null;
  readonly created_at: Instant;
}

const COLUMNS = 'id, tenant_id, site_id, pool_id, name, max_uses, uses, expires_at, revoked_at, created_at';

const view = (t: TokenRow): View => ({
  id: t.id,
  tenantId: t.tenant_id,
  siteId: t.site_id,
  poolId: t.pool_id,
  ...(t.name === null ? {} : { name: t.name }),
  maxUses: t.max_uses,
  uses: t.uses,
  expiresAt: t.expires_at,
  ...(t.revoked_at === null ? {} : { revokedAt: t.revoked_at }),
  createdAt: t.created_at,
});

async function byId(db: Sql, id: string): Promise<TokenRow | undefined> {
  const [row] = await read<TokenRow>(db, `select ${COLUMNS} from join_tokens where id = $1`, [id]);
  return row;
}

function list(
  db: Sql,
  tenantId: string,
  poolId: string | undefined,
  order: 'asc' | 'desc',
  after: After | undefined,
  limit: number,
) {
  const { cmp, dir } = keysetOrder(order);
  return read<TokenRow>(
    db,
    `select ${COLUMNS} from join_tokens where tenant_id = $1 and ($2::text is null or pool_id = $2)
       and ($3::timestamptz is null or (created_at, id) ${cmp} ($3, $4))
     order by created_at ${dir}, id ${dir} limit $5`,
    [tenantId, poolId ?? null, after?.at ?? null, after?.id ?? null, limit],
  );
}

export const handlers: Handlers<typeof joinTokenOperations> = {
  async 'joinTokens.create'(ctx, input) {
    const decision = await requireCollection(ctx, 'compute:joinTokens:create', 'compute-join-token');
    const { id, token, secretHash } = makeJoinToken();
    // The secret is nowhere at rest, so a repeated call shows the token without it: make another one then.
    let made = false;
    const stored = await performOnce<View>(ctx, 'joinTokens.create', decision, input, async (tx) => {
      made = true;
      const { poolId, name, ttlSeconds, maxUses } = input.body;
      const [row] = await tx.query<TokenRow>(
        `insert into join_tokens (id, tenant_id, site_id, pool_id, secret_hash, name, max_uses, expires_at, created_by)
         select $1, p.tenant_id, p.site_id, p.id, $2, $3, $4, compute_now() + make_interval(secs => $5), $6
         from pools p where p.id = $7 and p.tenant_id = $8 for share of p
         returning ${COLUMNS}`,
        [id, secretHash, name ?? null, maxUses, ttlSeconds, ctx.caller.identityId, poolId, ctx.caller.tenantId],
      );
      if (row === undefined) throw notFound('pool', poolId);
      tx.project({
        type: 'compute-join-token',
        id,
        tenantId: row.tenant_id,
        parentType: 'compute-pool',
        parentId: poolId,
        ownerId: ctx.caller.identityId,
        attributes: { pool: poolId, site: row.site_id, maxUses, ttlSeconds, ...(name === undefined ? {} : { name }) },
      });
      tx.emit({
        type: 'join_token.created',
        tenantId: row.tenant_id,
        kind: 'join_token',
        id,
        data: { id, poolId, maxUses, expiresAt: row.expires_at },
      });
      tx.audit({ tenantId: row.tenant_id, action: 'compute:joinTokens:create', type: 'compute-join-token', id });
      return view(row);
    });
    if (!made || stored.id !== id) return stored;
    const { gateway, caPin } = ctx.joinEndpoint ?? {};
    const pin = caPin === undefined ? '' : ` --ca-pin ${caPin}`;
    return { ...stored, token, joinCommand: `bcd join --gateway ${gateway ?? 'GATEWAY:PORT'} --token ${token}${pin}` };
  },
  async 'joinTokens.list'(ctx, input) {
    await requireCollection(ctx, 'compute:joinTokens:list', 'compute-join-token');
    const fetch = (after: After | undefined, limit: number) =>
      list(ctx.db, ctx.caller.tenantId, input.poolId, input.order, after, limit);
    return keysetPage(ctx, 'joinTokens.list', input, fetch, view);
  },
  async 'joinTokens.revoke'(ctx, input) {
    const found = await byId(ctx.db, input.id);
    if (found === undefined) throw notFound('join token', input.id);
    const decision = await ctx.require('compute:joinTokens:revoke', {
      type: 'compute-join-token',
      id: found.id,
      tenantId: found.tenant_id,
      parentType: 'compute-pool',
      parentId: found.pool_id,
      attributes: { pool: found.pool_id, site: found.site_id, maxUses: found.max_uses },
    });
    return performOnce(ctx, 'joinTokens.revoke', decision, input, async (tx) => {
      const [row] = await tx.query<TokenRow>(
        `update join_tokens set revoked_at = compute_now() where id = $1 and revoked_at is null returning ${COLUMNS}`,
        [found.id],
      );
      // Revoked before: nothing changes, and there is nothing to tell.
      if (row === undefined) return view((await byId(tx, found.id)) ?? found);
      tx.emit({
        type: 'join_token.revoked',
        tenantId: found.tenant_id,
        kind: 'join_token',
        id: found.id,
        data: { id: found.id },
      });
      tx.audit({
        tenantId: found.tenant_id,
        action: 'compute:joinTokens:revoke',
        type: 'compute-join-token',
        id: found.id,
      });
      return view(row);
    });
  },
};
