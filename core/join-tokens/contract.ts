/** Join tokens: secrets with which machines join a pool. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { id, instant, itemParams, listQuery, name, page, tenantId } from '../kernel/schemas.ts';

export const JOIN_TOKEN_SECONDS_MAX = 30 * 86_400;

export const JoinToken = z
  .object({
    id: id('joinToken'),
    tenantId,
    siteId: id('site'),
    poolId: id('pool'),
    name: name.optional(),
    maxUses: z.number().int(),
    uses: z.number().int(),
    expiresAt: instant,
    revokedAt: instant.optional(),
    createdAt: instant,
    token: z.string().optional().meta({ description: 'The secret, shown once, by create alone' }),
    joinCommand: z.string().optional().meta({ description: 'What to run on the machine; shown once, by create alone' }),
  })
  .meta({ id: 'JoinToken' });

export const JoinTokenCreate = z.strictObject({
  poolId: id('pool'),
  name: name.optional(),
  ttlSeconds: z
    .number()
    .int()
    .min(60)
    .max(JOIN_TOKEN_SECONDS_MAX)
    .default(3600)
    .meta({ description: 'Valid for so many seconds' }),
  maxUses: z.number().int().min(1).max(10_000).default(1).meta({ description: 'Machines that may join with it' }),
});

const resource = 'compute-join-token';

export const joinTokenOperations = {
  'joinTokens.create': operation({
    name: 'joinTokens.create',
    method: 'post',
    path: '/v1/join-tokens',
    body: JoinTokenCreate,
    output: JoinToken,
    successStatus: 201,
    iam: { action: 'compute:joinTokens:create', resource, on: 'collection' },
    errors: ['NOT_FOUND'],
    idempotent: true,
    help: 'Make a secret with which machines join a pool; it is shown once',
  }),
  'joinTokens.list': operation({
    name: 'joinTokens.list',
    method: 'get',
    path: '/v1/join-tokens',
    query: listQuery({ poolId: id('pool').optional() }),
    output: page(JoinToken),
    successStatus: 200,
    iam: { action: 'compute:joinTokens:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'name', 'poolId', 'uses', 'maxUses', 'expiresAt', 'revokedAt'],
    help: 'List join tokens, without their secrets',
  }),
  'joinTokens.revoke': operation({
    name: 'joinTokens.revoke',
    method: 'post',
    path: '/v1/join-tokens/{id}/revoke',
    params: itemParams('joinToken'),
    output: JoinToken,
    successStatus: 200,
    iam: { action: 'compute:joinTokens:revoke', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: true,
    help: 'Revoke a join token; machines that joined with it stay',
  }),
} as const;
