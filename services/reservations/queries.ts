/** All SQL of the slice. One function a statement; each takes the handle first. */
import type { Sql } from '#core/kernel/database.ts';
import type { PlacementReason } from '#core/kernel/errors.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { CandidateNode, Proposal } from '#core/placement/place.ts';
import type { AttributeValue } from '#core/placement/selectors.ts';
import type { ObservedAllocation } from '#core/reservations/plan.ts';
import type { ReservationState } from '#core/reservations/states.ts';
import { read } from '#db/mutate.ts';

/** One part of a request as SQL narrows by it. */
export interface NarrowWant {
  readonly class: string;
  readonly count: number;
  readonly equals: Readonly<Record<string, AttributeValue>>;
}

export interface DraftArgs {
  readonly id: string;
  readonly tenantId: string;
  readonly identityId: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly poolId: string;
  readonly name?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly binding: string;
  readonly devices: unknown;
  readonly durationSeconds: number;
  readonly leaseSeconds?: number;
  readonly context: unknown;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  readonly candidates?: readonly NarrowWant[];
}

export interface DraftAnswer<V> {
  readonly found: 'new' | 'draft' | 'stored' | 'mismatch' | 'no-pool';
  readonly id?: string;
  readonly now: Instant;
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  readonly candidates?: readonly (CandidateNode & { rank: number })[] | null;
  readonly stored?: V;
}

export async function draft<V>(db: Sql, args: DraftArgs): Promise<DraftAnswer<V>> {
  const [row] = await read<{ d: DraftAnswer<V> }>(db, 'select reservation_draft($1) as d', [JSON.stringify(args)]);
  return row!.d;
}

export interface AdmitArgs {
  readonly id: string;
  readonly allocationId: string;
  readonly policyEpoch?: number;
  readonly wants: Readonly<Record<string, number>>;
  readonly lead: string;
  readonly proposals?: readonly Proposal[];
  readonly context: unknown;
  readonly actor: string;
  readonly traceparent?: string;
}

export type AdmitAnswer<V> =
  | { readonly done: true; readonly reservation: V; readonly nodeId?: string; readonly replayed?: true }
  | { readonly done: false; readonly why: 'no-fit' | 'gone' };

/** Both in one round trip, on attributes that IAM allowed ahead; without `admitted` the draft has others. */
export async function createAhead<V>(
  db: Sql,
  draftArgs: DraftArgs,
  expected: DraftArgs['attributes'],
  admitArgs: AdmitArgs,
): Promise<DraftAnswer<V> & { readonly admitted?: AdmitAnswer<V> }> {
  const [row] = await db.query<{ d: DraftAnswer<V> & { admitted?: AdmitAnswer<V> } }>(
    'select reservation_create($1, $2, $3) as d',
    [JSON.stringify(draftArgs), JSON.stringify(expected), JSON.stringify(admitArgs)],
  );
  return row!.d;
}

/** Not through read(): admit.ts repeats it on contention before errors are mapped. */
export async function admit<V>(db: Sql, args: AdmitArgs): Promise<AdmitAnswer<V>> {
  const [row] = await db.query<{ a: AdmitAnswer<V> }>('select reservation_admit($1) as a', [JSON.stringify(args)]);
  return row!.a;
}

export async function candidates(
  db: Sql,
  poolId: string,
  wants: readonly NarrowWant[],
  after: { free: number; nodeId: string } | null,
  limit: number,
): Promise<readonly (CandidateNode & { rank: number })[]> {
  const [row] = await read<{ c: readonly (CandidateNode & { rank: number })[] }>(
    db,
    'select placement_candidates($1, $2, $3, $4) as c',
    [poolId, JSON.stringify(wants), after === null ? null : JSON.stringify(after), limit],
  );
  return row!.c;
}

export async function sample(
  db: Sql,
  poolId: string,
  classes: readonly string[],
  limit: number,
): Promise<CandidateNode[]> {
  const [row] = await read<{ c: CandidateNode[] }>(db, 'select placement_sample($1, $2, $3) as c', [
    poolId,
    classes,
    limit,
  ]);
  return row!.c;
}

/** Why a request without selectors fits nowhere, from the capacity summaries of so many nodes. */
export async function refusals(
  db: Sql,
  poolId: string,
  wants: Readonly<Record<string, number>>,
  limit: number,
): Promise<{ free: number; reasons: PlacementReason[] }> {
  const [row] = await read<{ r: { free: number; reasons: PlacementReason[] } }>(
    db,
    'select placement_refusals($1, $2, $3) as r',
    [poolId, JSON.stringify(wants), limit],
  );
  return row!.r;
}

export interface ReservationRow<V> extends Record<string, unknown> {
  readonly view: V;
  readonly tenant_id: string;
  readonly identity_id: string;
  readonly pool_id: string;
  readonly state: ReservationState;
  readonly state_version: number;
  readonly starts_at: Instant | null;
  readonly ends_at: Instant | null;
  readonly lease_seconds: number | null;
  readonly devices: readonly { class: string; count: number }[];
  readonly attributes: Record<string, string | number | boolean>;
  readonly now: Instant;
}

export async function byId<V>(db: Sql, id: string): Promise<ReservationRow<V> | undefined> {
  const [row] = await read<ReservationRow<V>>(
    db,
    `select reservation_json(r.id) as view, r.tenant_id, r.identity_id, r.pool_id, r.state, r.state_version, r.starts_at,
       r.ends_at, r.lease_seconds, r.devices, coalesce(z.attributes, '{}') as attributes, compute_now() as now
     from reservations r left join authz_resources z on z.id = r.id and z.type = 'compute-reservation' where r.id = $1`,
    [id],
  );
  return row;
}

export async function view<V>(db: Sql, id: string): Promise<V> {
  const [row] = await db.query<{ view: V }>('select reservation_json($1) as view', [id]);
  return row!.view;
}

export interface ListFilter {
  readonly tenantId: string;
  readonly poolId?: string;
  readonly state?: string;
  readonly after?: { at: Instant; id: string };
  readonly order: 'asc' | 'desc';
  readonly limit: number;
}

export async function list<V>(db: Sql, f: ListFilter): Promise<{ view: V; created_at: Instant; id: string }[]> {
  const [cmp, dir] = f.order === 'asc' ? ['>', 'asc'] : ['<', 'desc'];
  return read<{ view: V; created_at: Instant; id: string }>(
    db,
    `select reservation_json(id) as view, created_at, id from reservations
     where tenant_id = $1 and ($2::text is null or pool_id = $2) and ($3::text is null or state = $3)
       and ($4::timestamptz is null or (created_at, id) ${cmp} ($4, $5))
     order by created_at ${dir}, id ${dir} limit $6`,
    [f.tenantId, f.poolId ?? null, f.state ?? null, f.after?.at ?? null, f.after?.id ?? null, f.limit],
  );
}

/** Locks the reservation and reads what a verb decides on. */
export async function lock(tx: Sql, id: string): Promise<ReservationRow<never> | undefined> {
  const [row] = await tx.query<ReservationRow<never>>(
    `select null as view, tenant_id, identity_id, pool_id, state, state_version, starts_at, ends_at, lease_seconds,
       devices, '{}'::jsonb as attributes, compute_now() as now
     from reservations where id = $1 for update`,
    [id],
  );
  return row;
}

export interface ObservedRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly state: ReservationState;
  readonly created_at: Instant;
  readonly ends_at: Instant | null;
  readonly lease_expires_at: Instant | null;
  readonly changed_at: Instant;
  /** What deadlines go by. */
  readonly now: Instant;
  /** The clock jumped, and deadlines do not go by it. */
  readonly doubtful: boolean;
  readonly allocations: readonly ObservedAllocation[];
}

/** Everything that planReservation() reads, in one statement. */
export async function observe(db: Sql, id: string): Promise<ObservedRow | undefined> {
  const [row] = await read<ObservedRow>(
    db,
    `select r.tenant_id, r.state, r.created_at, r.ends_at, r.lease_expires_at, r.state_changed_at as changed_at,
       steady_now() as now, compute_now() > steady_now() as doubtful,
       coalesce((select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
           'allocationId', a.id, 'nodeId', a.node_id, 'nodeName', n.name, 'specGeneration', a.spec_generation,
           'releaseGeneration', a.release_generation, 'observedGeneration', n.observed_generation,
           'connectivity', n.connectivity,
           'fenced', n.fenced_at is not null and n.fenced_at >= a.created_at, 'released', a.released_at is not null)) order by a.id)
         from allocations a join nodes n on n.id = a.node_id where a.reservation_id = r.id), '[]') as allocations
     from reservations r where r.id = $1`,
    [id],
  );
  return row;
}

export async function history(
  db: Sql,
  id: string,
): Promise<
  { event: string; from_state: string; to_state: string; actor: string; reason: string | null; at: Instant }[]
> {
  return read(
    db,
    `select event, from_state, to_state, actor, reason, at from state_history where subject_id = $1 order by seq`,
    [id],
  );
}
