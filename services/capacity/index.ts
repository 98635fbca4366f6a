/** Capacity: the only door to this folder. */
import { type capacityOperations, SERIES } from '#core/capacity/contract.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Output } from '#core/kernel/operations.ts';
import { addSeconds, toMillis } from '#core/kernel/time.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { type Asked, fits, whyNot } from '../reservations/index.ts';
import { notFound } from '../verbs.ts';
import * as sql from './queries.ts';

type View = Output<(typeof capacityOperations)['capacity.get']>;

const DAY = 86_400;

/** `seen`: the pool as the caller sees it, if at all. */
async function authorize<P extends { site: string }>(
  ctx: RequestContext,
  verb: string,
  poolId: string,
  seen: P | undefined,
): Promise<P> {
  if (seen === undefined) throw notFound('pool', poolId);
  await ctx.require(`compute:capacity:${verb}`, {
    type: 'compute-capacity',
    id: poolId,
    tenantId: ctx.caller.tenantId,
    parentType: 'compute-pool',
    parentId: poolId,
    attributes: { pool: poolId, site: seen.site },
  });
  return seen;
}

const bad = (field: string, message: string) =>
  problem('INVALID_REQUEST', `${field}: ${message}`, { errors: [{ field, message }] });

export const handlers: Handlers<typeof capacityOperations> = {
  async 'capacity.get'(ctx, input) {
    const seen = await sql.capacity<View>(ctx.db, input.poolId, ctx.caller.tenantId);
    return (await authorize(ctx, 'get', input.poolId, seen)).view;
  },

  async 'capacity.series'(ctx, input) {
    const seen = await sql.pool(ctx.db, input.poolId, ctx.caller.tenantId);
    const { now } = await authorize(ctx, 'series', input.poolId, seen);
    const from = input.from ?? now;
    const to = input.to ?? addSeconds(from, DAY);
    const seconds = (toMillis(to) - toMillis(from)) / 1000;
    if (seconds <= 0) throw bad('to', 'must be after `from`');
    if (seconds > SERIES.SPAN_SECONDS_MAX) throw bad('to', 'must be at most 366 days after `from`');
    const steps = Math.ceil(seconds / input.stepSeconds);
    if (steps > SERIES.POINTS_MAX) {
      throw bad(
        'stepSeconds',
        `${steps} steps are more than ${SERIES.POINTS_MAX}: take longer ones, or a shorter time`,
      );
    }
    const rows = await sql.series(ctx.db, input.poolId, { from, to, stepSeconds: input.stepSeconds, steps });
    const resources = rows.map(({ resource, allocatable, booked }) => ({
      resource: resource as View['resources'][number]['resource'],
      points: booked.map((n, i) => ({
        at: addSeconds(from, i * input.stepSeconds),
        allocatable,
        booked: n,
        available: Math.max(0, allocatable - n),
      })),
    }));
    return { poolId: input.poolId, from, to, stepSeconds: input.stepSeconds, resources };
  },

  async 'capacity.explain'(ctx, input) {
    const { poolId } = input.body;
    await authorize(ctx, 'explain', poolId, await sql.pool(ctx.db, poolId, ctx.caller.tenantId));
    const asked = input.body as Asked;
    if (await fits(ctx.db, asked)) return { fits: true, free: 0, reasons: [] };
    const { free, reasons } = await whyNot(ctx.db, asked);
    return { fits: false, free, reasons: [...reasons] };
  },
};
