/**
 * reservations.create: draft -> IAM -> place, at most two round trips to the database.
 *
 * 1. reservation_draft(): the request becomes a row, so that a policy decides on something that exists. Its id follows
 *    from tenant, caller and key, so every retry finds the same row.
 * 2. IAM decides on the draft (in memory when embedded). Denied: the draft stays, holds nothing, and may be retried.
 * 3. reservation_admit(): place, book, charge, announce, in one transaction. The constraint decides, not the proposal.
 *
 * A caller who was admitted in the pool a moment ago needs one: IAM decides ahead on what the pool was then, and the
 * database admits the draft at once if the pool is still so.
 */
import type { z } from '@hono/zod-openapi';
import type { Decision } from '#core/iam/port.ts';
import { canonicalHash, type Json, sha256Hex } from '#core/kernel/canonical-json.ts';
import type { Database } from '#core/kernel/database.ts';
import { problem } from '#core/kernel/errors.ts';
import { idFromBytes, newId } from '#core/kernel/ids.ts';
import { whyNoGang } from '#core/placement/gang.ts';
import {
  type CandidateNode,
  type DeviceWant,
  hasSelectors,
  leadClass,
  type Proposal,
  place,
  wantsByClass,
} from '#core/placement/place.ts';
import { type Reservation, type ReservationCreate, START_SECONDS_MAX } from '#core/reservations/contract.ts';

import { isContention, sqlProblem } from '#db/sql-problem.ts';
import { admissionOf, type RequestContext } from '../context.ts';
import { type KnownPool, knownPool } from './known-pools.ts';
import { narrowed } from './narrow.ts';
import * as sql from './queries.ts';

/** Times an admission is tried again after losing its devices to somebody else. */
const TRIES_MAX = 6;
/** Nodes looked at for one request with selectors, in pages of 32. */
const PAGES_MAX = 64;
const PAGE = 32;
/** Nodes that a refusal is explained with: by their summaries, or device by device. */
const SUMMARIES = 1000;
const SAMPLE = 100;

/** As the database's clock saw it at admission. */
const BAD_START: Readonly<Record<string, string>> = {
  past: 'must be in the future; leave it out to begin at once',
  far: `must be at most ${START_SECONDS_MAX / 86_400} days ahead`,
};

type Create = z.output<typeof ReservationCreate>;
type View = z.input<typeof Reservation>;

/** The draft's id: the same request key of the same caller names the same row, for ever. */
function draftId(tenantId: string, identityId: string, key: string) {
  const hex = sha256Hex(JSON.stringify(['reservation', tenantId, identityId, key]));
  return idFromBytes(
    'reservation',
    Uint8Array.from(hex.slice(0, 32).match(/../g)!, (b) => Number.parseInt(b, 16)),
  );
}

/** What must be free, and when. */
export interface Asked extends sql.Window {
  readonly poolId: string;
  readonly devices: readonly DeviceWant[];
  readonly gang?: { readonly nodes: number; readonly sameLabel?: string } | undefined;
}

interface Chosen {
  readonly proposals: readonly Proposal[];
  readonly overSpot?: true;
}
const REACHES: readonly sql.Reach[] = ['free', 'any', 'over-spot'];

/** Pages through candidates until some node fits. The first page usually came with the draft. */
async function proposalsFor(
  db: Database,
  body: Asked,
  first: readonly (CandidateNode & { rank: number })[] | undefined,
  o: { readonly overSpot?: boolean; readonly choose?: RequestContext['placer'] } = {},
): Promise<Chosen> {
  const choose = o.choose ?? ((wants, nodes) => place(wants, nodes).proposals);
  let page = first;
  for (const reach of REACHES) {
    if (reach === 'over-spot' && o.overSpot !== true) break;
    let after: { free: number; nodeId: string } | null = null;
    for (let i = 0; i < PAGES_MAX; i++) {
      page ??= await sql.candidates(db, body.poolId, narrowed(body.devices), body, { reach, after, limit: PAGE });
      const proposals = choose(body.devices, page);
      if (proposals.length > 0) return reach === 'over-spot' ? { proposals, overSpot: true } : { proposals };
      if (page.length < PAGE) break;
      const last: CandidateNode & { rank: number } = page[page.length - 1]!;
      after = { free: last.rank, nodeId: last.nodeId };
      page = undefined;
    }
    page = undefined;
  }
  return { proposals: [] };
}

/** Why nothing fits, over a bounded part of the pool: from the summaries, or device by device where that is not enough. */
export async function whyNot(db: Database, asked: Asked) {
  const wants = asked.devices;
  const counts = wantsByClass(wants);
  if (asked.gang === undefined && asked.start === undefined && !hasSelectors(wants))
    return sql.refusals(db, asked.poolId, counts, SUMMARIES);
  const nodes = await sql.sample(db, asked.poolId, Object.keys(counts), asked, SAMPLE);
  if (asked.gang !== undefined) return whyNoGang(counts, nodes, asked.gang);
  const answer = place(wants, nodes);
  return { free: answer.free, reasons: answer.refused };
}

/** Whether it would find its devices at this instant. */
export async function fits(db: Database, asked: Asked): Promise<boolean> {
  if (asked.gang === undefined && hasSelectors(asked.devices))
    return (await proposalsFor(db, asked, undefined)).proposals.length > 0;
  return sql.fits(db, { ...asked, wants: wantsByClass(asked.devices), lead: leadClass(asked.devices) });
}

async function refuse(ctx: RequestContext, asked: Asked): Promise<never> {
  const each = Object.values(wantsByClass(asked.devices)).reduce((a, b) => a + b, 0);
  const wanted = each * (asked.gang?.nodes ?? 1);
  const { free, reasons } = await whyNot(ctx.db, asked);
  const when = asked.start === undefined ? 'now' : `from ${asked.start} for ${asked.durationSeconds} s`;
  const whom =
    asked.gang === undefined ? 'no node of the pool can' : `no ${asked.gang.nodes} whole nodes of the pool can`;
  throw problem('CAPACITY_UNAVAILABLE', `${whom} hold ${wanted} device(s) ${when}`, {
    wanted,
    free,
    reasons: reasons.length > 0 ? reasons : [{ code: 'NO_NODES', message: 'the pool has no nodes yet', nodes: 0 }],
  });
}

export async function create(ctx: RequestContext, input: { body: Create }): Promise<View> {
  const { body } = input;
  const key = ctx.idempotencyKey;
  if (key === undefined) throw problem('IDEMPOTENCY_KEY_REQUIRED', 'reservations.create needs an Idempotency-Key');
  const { tenantId, identityId } = ctx.caller;
  const wants = wantsByClass(body.devices);
  const nodes = body.gang?.nodes ?? 1;
  const bySelectors = body.gang === undefined && (hasSelectors(body.devices) || ctx.placer !== undefined);
  const context = admissionOf(ctx);
  const id = draftId(tenantId, identityId, key);

  const draft: sql.DraftArgs = {
    ...body,
    id,
    tenantId,
    identityId,
    key,
    fingerprint: canonicalHash(['reservations.create', body as unknown as Json]),
    context,
    attributes: {
      binding: body.binding,
      durationSeconds: body.durationSeconds,
      devices: nodes * Object.values(wants).reduce((a, b) => a + b, 0),
      gpus: nodes * (wants['gpu'] ?? 0),
      ...(body.gang === undefined ? {} : { nodes }),
      ...(body.start === undefined ? {} : { start: body.start }),
      ...(body.spot ? { spot: true } : {}),
      ...(body.name === undefined ? {} : { name: body.name }),
      ...(body.leaseSeconds === undefined ? {} : { leaseSeconds: body.leaseSeconds }),
    },
    ...(bySelectors ? { candidates: narrowed(body.devices) } : {}),
  };
  const decide = (attributes: sql.DraftArgs['attributes']) =>
    ctx.require('compute:reservations:create', {
      type: 'compute-reservation',
      id,
      tenantId,
      ownerId: identityId,
      parentType: 'compute-pool',
      parentId: body.poolId,
      attributes,
    });
  const admission = ({ policyEpoch }: Decision): sql.AdmitArgs => ({
    id,
    allocationIds: Array.from({ length: nodes }, () => newId('allocation')),
    wants,
    lead: leadClass(body.devices),
    context,
    actor: 'api',
    ...(policyEpoch === undefined ? {} : { policyEpoch }),
    ...(ctx.traceparent === undefined ? {} : { traceparent: ctx.traceparent }),
  });

  const pool = knownPool(ctx.db, tenantId, identityId, body.poolId);
  // What an agent does may have to be confirmed by a person, who is shown the draft.
  const mayDecideAhead = !bySelectors && ctx.caller.agentId === undefined;
  const ahead = mayDecideAhead ? await decidedAhead(ctx, pool, draft, decide, admission) : undefined;
  const drafted = ahead ?? (await sql.draft<View>(ctx.db, draft));
  if (drafted.found === 'stored') return drafted.stored!;
  if (drafted.found === 'mismatch') {
    throw problem('IDEMPOTENCY_MISMATCH', 'the key was used with another reservations.create request');
  }
  if (drafted.found === 'no-pool') throw problem('NOT_FOUND', `there is no pool ${body.poolId} that you may use`);
  if (ahead?.admitted !== undefined) return admitted(ctx, id, ahead.admitted) ?? (await refuse(ctx, body));

  const attributes = drafted.attributes ?? {};
  const decision = await decide(attributes);
  let page = drafted.candidates ?? undefined;
  for (let attempt = 1; ; attempt++) {
    const choice = { overSpot: !body.spot, choose: ctx.placer };
    const chosen = bySelectors ? await proposalsFor(ctx.db, body, page, choice) : undefined;
    page = undefined;
    if (chosen?.proposals.length === 0) return refuse(ctx, body);
    try {
      const answer = await sql.admit<View>(ctx.db, {
        ...admission(decision),
        ...chosen,
      });
      const view = admitted(ctx, id, answer);
      if (view !== undefined) {
        pool.keep(Object.fromEntries(Object.entries(attributes).filter(([name]) => !(name in draft.attributes))));
        return view;
      }
    } catch (e) {
      if (isContention(e) && attempt < TRIES_MAX) continue;
      throw sqlProblem(e);
    }
    // Proposals were made on a snapshot: others may have taken those nodes. The walk saw every node itself.
    if (chosen === undefined || attempt >= TRIES_MAX) return refuse(ctx, body);
  }
}

/**
 * Draft and admission in one round trip, where an earlier one told what IAM will be asked about. Whatever goes wrong
 * here is said by the two that follow, once the draft stands.
 */
async function decidedAhead(
  ctx: RequestContext,
  pool: KnownPool,
  draft: sql.DraftArgs,
  decide: (attributes: sql.DraftArgs['attributes']) => Promise<Decision>,
  admission: (decision: Decision) => sql.AdmitArgs,
) {
  if (pool.facts === undefined) return undefined;
  const expected = { ...draft.attributes, ...pool.facts };
  try {
    return await sql.createAhead<View>(ctx.db, draft, expected, admission(await decide(expected)));
  } catch {
    pool.forget();
    return undefined;
  }
}

/** Undefined when nothing fitted. */
function admitted(ctx: RequestContext, id: string, answer: sql.AdmitAnswer<View>): View | undefined {
  if (!answer.done) {
    if (answer.why === 'gone') throw problem('CONTENTION', 'the draft was dropped meanwhile');
    const wrong = BAD_START[answer.why];
    if (wrong !== undefined) {
      throw problem('INVALID_REQUEST', `start: ${wrong}`, { errors: [{ field: 'start', message: wrong }] });
    }
    return undefined;
  }
  if (answer.replayed === undefined) {
    const nodes = answer.reservation.allocations.map((a) => ({ kind: 'nodes.spec', key: a.nodeId }));
    ctx.poke([...nodes, { kind: 'reservations', key: id }]);
  }
  return answer.reservation;
}
