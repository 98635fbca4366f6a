/** All SQL of the slice. One function a statement; each takes the handle first. */
import type { Sql } from '#core/kernel/database.ts';
import type { PlacementReason } from '#core/kernel/errors.ts';
import type { Instant } from '#core/kernel/time.ts';
import type { CandidateNode, DeviceWant, Proposal } from '#core/placement/place.ts';
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
  readonly gang?: { readonly nodes: number; readonly sameLabel?: string };
  readonly spot?: boolean;
  readonly start?: Instant;
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
  /** One a node. */
  readonly allocationIds: readonly string[];
  readonly policyEpoch?: number;
  readonly wants: Readonly<Record<string, number>>;
  readonly lead: string;
  readonly proposals?: readonly Proposal[];
  /** The proposals take devices of spot reservations, which are told to give way. */
  readonly overSpot?: true;
  readonly context: unknown;
  readonly actor: string;
  readonly traceparent?: string;
}

export type AdmitAnswer<V> =
  | { readonly done: true; readonly reservation: V; readonly replayed?: true }
  | { readonly done: false; readonly why: 'no-fit' | 'gone' | 'past' | 'far' };

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

/** From when devices are wanted (undefined: at once) and for how long. */
export interface Window {
  readonly start?: Instant;
  readonly durationSeconds: number;
}

const windowArgs = (w: Window) => [w.start ?? null, w.durationSeconds] as const;
const DURING = (start: number, seconds: number, now = 'compute_now()') =>
  `tstzrange(coalesce($${start}::timestamptz, ${now}), coalesce($${start}::timestamptz, ${now}) + make_interval(secs => $${seconds}), '[)')`;
/** When what is wanted at once begins where others must be told to give way first. */
const AFTER_NOTICE = '(select compute_now() + make_interval(secs => spot_notice_seconds) from pools where id = $1)';

/** Nodes with enough that is nobody's; any with enough that is open then; or those where spot must give way for it. */
export type Reach = 'free' | 'any' | 'over-spot';

/** A page of nodes behind `after`, those that leave least over first, or by id. */
export async function candidates(
  db: Sql,
  poolId: string,
  wants: readonly NarrowWant[],
  window: Window,
  page: { readonly reach: Reach; readonly after: { free: number; nodeId: string } | null; readonly limit: number },
): Promise<readonly (CandidateNode & { rank: number })[]> {
  const [row] = await read<{ c: readonly (CandidateNode & { rank: number })[] }>(
    db,
    page.reach === 'over-spot'
      ? `select placement_candidates($1, $2, $3, $4, ${DURING(5, 6, AFTER_NOTICE)}, false, true, $7) as c`
      : `select placement_candidates($1, $2, $3, $4, ${DURING(5, 6)}, $5::timestamptz is null, $7, false) as c`,
    [
      poolId,
      JSON.stringify(wants),
      page.after === null ? null : JSON.stringify(page.after),
      page.limit,
      ...windowArgs(window),
      page.reach !== 'free',
    ],
  );
  return row!.c;
}

export async function sample(
  db: Sql,
  poolId: string,
  classes: readonly string[],
  window: Window,
  limit: number,
): Promise<CandidateNode[]> {
  const [row] = await read<{ c: CandidateNode[] }>(
    db,
    `select placement_sample($1, $2, $3, ${DURING(4, 5)}, $4::timestamptz is null) as c`,
    [poolId, classes, limit, ...windowArgs(window)],
  );
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

/** Whether a request without selectors would find its nodes. */
export async function fits(
  db: Sql,
  a: Window & {
    readonly poolId: string;
    readonly gang?: { readonly nodes: number; readonly sameLabel?: string | undefined } | undefined;
    readonly wants: Readonly<Record<string, number>>;
    readonly lead: string;
  },
): Promise<boolean> {
  const args = [a.poolId, JSON.stringify(a.wants), a.lead, ...windowArgs(a)];
  const [row] =
    a.gang === undefined
      ? await read<{ fits: boolean }>(
          db,
          `select coalesce(node_candidate($1, $2, $3, '{}'),
             node_window($1, $2, $3, '{}', ${DURING(4, 5)}, $4::timestamptz is null, $4::timestamptz is null, null)) is not null as fits`,
          args,
        )
      : await read<{ fits: boolean }>(
          db,
          `select gang_nodes($1, $2, $3, $6, $7, ${DURING(4, 5)}, $4::timestamptz is null) is not null as fits`,
          [...args, a.gang.nodes, a.gang.sameLabel ?? null],
        );
  return row!.fits;
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
  readonly devices: readonly DeviceWant[];
  readonly gang: { readonly nodes: number; readonly sameLabel?: string; readonly replace: boolean } | null;
  readonly spot: boolean;
  readonly duration_seconds: number;
  readonly attributes: Record<string, string | number | boolean>;
  readonly now: Instant;
}

export async function byId<V>(db: Sql, id: string): Promise<ReservationRow<V> | undefined> {
  const [row] = await read<ReservationRow<V>>(
    db,
    `select reservation_json(r.id) as view, r.tenant_id, r.identity_id, r.pool_id, r.state, r.state_version, r.starts_at,
       r.ends_at, r.lease_seconds, r.devices, r.gang, r.spot, r.duration_seconds, coalesce(z.attributes, '{}') as attributes, compute_now() as now
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
       devices, gang, spot, duration_seconds, '{}'::jsonb as attributes, compute_now() as now
     from reservations where id = $1 for update`,
    [id],
  );
  return row;
}

/** From when on somebody else has booked one of the reservation's devices; null: nobody has. */
export async function bookedFrom(tx: Sql, id: string): Promise<Instant | null> {
  const [row] = await tx.query<{ at: Instant | null }>(
    `select min(lower(n.during)) as at
     from allocations a join device_bookings b on b.allocation_id = a.id and b.released_at is null
     join device_bookings n on n.device_no = b.device_no and n.released_at is null and lower(n.during) > lower(b.during)
     where a.reservation_id = $1`,
    [id],
  );
  return row!.at;
}

export interface ObservedRow extends Record<string, unknown> {
  readonly tenant_id: string;
  readonly state: ReservationState;
  readonly created_at: Instant;
  readonly starts_at: Instant | null;
  readonly preempted: boolean;
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
    `select r.tenant_id, r.state, r.created_at, r.starts_at, r.preempted_at is not null as preempted, r.ends_at, r.lease_expires_at, r.state_changed_at as changed_at,
       steady_now() as now, compute_now() > steady_now() as doubtful,
       coalesce((select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
           'allocationId', a.id, 'nodeId', a.node_id, 'nodeName', n.name, 'specGeneration', a.spec_generation,
           'releaseGeneration', a.release_generation, 'observedGeneration', n.observed_generation,
           'connectivity', n.connectivity,
           'fenced', n.fenced_at is not null and n.fenced_at >= a.created_at, 'released', a.released_at is not null,
           'held', a.held_at is not null, 'triedAt', instant((a.ailing ->> 'triedAt')::timestamptz),
           'ailing', case when r.state = 'scheduled' then allocation_ailing(a.id) else '[]' end,
           'heldBy', case when r.state = 'scheduled' then (
             select h.reservation_id from device_bookings b join devices d on d.no = b.device_no join allocations h on h.id = d.allocation_id
             where b.allocation_id = a.id limit 1) end)) order by a.id)
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

/** An allocation as the API shows it, what is wrong with it, and what was told of that. */
export async function ailingAllocation<P>(
  tx: Sql,
  id: string,
  allocationId: string,
): Promise<{ old: P; why: readonly string[]; told: readonly string[] | null }> {
  const [row] = await tx.query<{ old: P; why: readonly string[]; told: readonly string[] | null }>(
    `select x as old, allocation_ailing($2) as why, (select ailing -> 'why' from allocations where id = $2) as told
     from jsonb_array_elements(reservation_json($1) -> 'allocations') x where x ->> 'id' = $2`,
    [id, allocationId],
  );
  return row!;
}

export async function noteAiling(tx: Sql, allocationId: string, why: readonly string[]): Promise<void> {
  await tx.query(
    `update allocations set ailing = jsonb_build_object('why', $2::jsonb, 'triedAt', steady_now()) where id = $1`,
    [allocationId, JSON.stringify(why)],
  );
}

interface Taking {
  readonly id: string;
  readonly allocationId: string;
  readonly wants: Readonly<Record<string, number>>;
}

/** Takes one node for the window of a reservation that is scheduled, its former node first. */
export async function takeSingle<P>(
  tx: Sql,
  t: Taking & { readonly formerNode: string; readonly lead: string },
): Promise<P | undefined> {
  const [row] = await tx.query<{ taken: P | null }>(
    `select coalesce(node_take(id, tenant_id, pool_id, w, $2, $3, $4, null, false, spot, false),
       single_take(id, tenant_id, pool_id, w, $2, $4, $5, false, spot)) as taken
     from (select *, tstzrange(starts_at, ends_at, '[)') as w from reservations where id = $1) r`,
    [t.id, t.allocationId, t.formerNode, JSON.stringify(t.wants), t.lead],
  );
  return row!.taken ?? undefined;
}

export async function takeProposal<P>(tx: Sql, t: Taking & Proposal): Promise<P | undefined> {
  const [row] = await tx.query<{ taken: P | null }>(
    `select node_take(id, tenant_id, pool_id, tstzrange(starts_at, ends_at, '[)'), $2, $3, $4, $5::bigint[], false, spot, false) as taken
     from reservations where id = $1`,
    [t.id, t.allocationId, t.nodeId, JSON.stringify(t.wants), t.deviceNos],
  );
  return row!.taken ?? undefined;
}

/** Takes one whole node in place of a gang's member, equal in number of devices and in the gang's label. */
export async function takeMember<P>(tx: Sql, t: Taking & { readonly formerNode: string }): Promise<P | undefined> {
  const [row] = await tx.query<{ taken: P | null }>('select gang_member($1, $2, $3, $4) as taken', [
    t.id,
    t.allocationId,
    t.formerNode,
    JSON.stringify(t.wants),
  ]);
  return row!.taken ?? undefined;
}
