-- Reservations: a tenant's claim on devices, from draft to release, and the functions that admit it.

-- No foreign key to pools: its check would lock the one row of a busy pool in every admission. A draft on a pool that is
-- deleted at the same instant finds no node and holds nothing.
create table reservations (
  id text primary key,
  tenant_id text not null,
  identity_id text not null,
  idempotency_key text not null,
  fingerprint text not null,
  pool_id text not null,
  name text,
  labels jsonb not null default '{}',
  state text not null default 'draft',
  state_version bigint not null default 1,
  state_changed_at timestamptz not null default compute_now(),
  state_reason text,
  binding text not null default 'hold',
  -- [{class, count, selectors}], as asked for; of a gang: on each of its nodes.
  devices jsonb not null,
  -- {nodes, sameLabel?}; null: one node.
  gang jsonb,
  -- Gives way, with notice, to a request that is not spot where nothing else fits.
  spot boolean not null default false,
  -- When it was told to give way; it ends at ends_at.
  preempted_at timestamptz,
  duration_seconds bigint not null,
  lease_seconds bigint,
  -- Of a draft: the start that was asked for, or null for at once.
  starts_at timestamptz,
  ends_at timestamptz,
  lease_expires_at timestamptz,
  context jsonb not null,
  created_at timestamptz not null default compute_now(),
  activated_at timestamptz,
  ended_at timestamptz,
  released_at timestamptz,
  constraint reservations_draft_once unique (tenant_id, identity_id, idempotency_key),
  constraint reservations_duration check (duration_seconds between 1 and 31622400),
  constraint reservations_lease check (lease_seconds between 1 and 31622400),
  constraint reservations_window check (ends_at > starts_at)
) with (fillfactor = 70);
create index reservations_tenant on reservations (tenant_id, created_at, id);

-- A placement on one node. Facts, each written once: which generation of the node's spec first held it, and which first
-- did without it. The node's observed generation against these two says what the machine has done.
-- No foreign keys: reservation_admit() is the one writer and has both rows in hand, and their checks would lock the node's
-- row in every admission.
create table allocations (
  id text primary key,
  reservation_id text not null,
  tenant_id text not null,
  pool_id text not null,
  node_id text not null,
  created_at timestamptz not null default compute_now(),
  -- Since when the devices are in its hands; null while its window has not begun.
  held_at timestamptz,
  spec_generation bigint,
  active_at timestamptz,
  ended_at timestamptz,
  release_generation bigint,
  released_at timestamptz,
  -- What was found wrong with it before its start, and told: [{deviceId, why}].
  ailing jsonb
) with (fillfactor = 70);
create index allocations_reservation on allocations (reservation_id);
create index allocations_live_node on allocations (node_id) where released_at is null;

-- One row a device and allocation. The constraint is the referee of the whole product: at most one live booking a
-- device and instant. Partial, so that history costs nothing; released rows move to booking_history in batches.
create table device_bookings (
  device_no bigint not null,
  allocation_id text not null,
  during tstzrange not null,
  -- Of a spot reservation that was not told to give way.
  spot boolean not null default false,
  released_at timestamptz,
  constraint device_bookings_pk primary key (allocation_id, device_no),
  constraint device_bookings_window_not_empty check (not isempty(during)),
  constraint device_bookings_no_overlap exclude using gist ((device_no + 0) with =, during with &&) where (released_at is null)
);
-- How everybody but the constraint finds live bookings. The constraint's own index must never serve a query: a scan
-- that starts again after the first page split marks live entries dead, and then the referee is blind to bookings that
-- stand (docs/decisions/0012). Hence its expression, and meets() instead of &&.
create index device_bookings_live on device_bookings (device_no) where released_at is null;

-- Do two windows share an instant? As && says, and no index answers it.
create function meets(a tstzrange, b tstzrange) returns boolean language sql immutable parallel safe as $$
  select coalesce(lower(a) < upper(b), true) and coalesce(lower(b) < upper(a), true)
$$;
create index device_bookings_released on device_bookings (released_at) where released_at is not null;

create table booking_history (
  device_no bigint not null,
  allocation_id text not null,
  during tstzrange not null,
  released_at timestamptz not null
);
create index booking_history_allocation on booking_history (allocation_id);

-- One row an allocation, hour and meter: device-seconds held in that hour. Sealed once the hour is over or the
-- allocation ended; a sealed row never changes.
create table usage_windows (
  allocation_id text not null,
  hour timestamptz not null,
  meter text not null,
  reservation_id text not null,
  tenant_id text not null,
  pool_id text not null,
  device_seconds bigint not null,
  sealed boolean not null default false,
  exported_at timestamptz,
  updated_at timestamptz not null default compute_now(),
  primary key (allocation_id, hour, meter),
  constraint usage_windows_seconds_not_negative check (device_seconds >= 0)
) with (fillfactor = 70);
create index usage_windows_tenant on usage_windows (tenant_id, hour, allocation_id, meter);

-- The reservation as the API shows it, with its allocations as reservation_json() lists them.
create function reservation_view(r reservations, allocations jsonb) returns jsonb language sql stable as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'id', r.id, 'tenantId', r.tenant_id, 'poolId', r.pool_id, 'name', r.name, 'state', r.state, 'reason', r.state_reason,
    'gang', r.gang, 'spot', nullif(r.spot, false), 'preemptedAt', instant(r.preempted_at), 'binding', r.binding, 'durationSeconds', r.duration_seconds, 'leaseSeconds', r.lease_seconds,
    'startsAt', instant(r.starts_at), 'endsAt', instant(r.ends_at), 'leaseExpiresAt', instant(r.lease_expires_at), 'createdAt', instant(r.created_at),
    'activatedAt', instant(r.activated_at), 'releasedAt', instant(r.released_at))) || jsonb_build_object(
    'labels', r.labels, 'devices', r.devices, 'version', r.state_version, 'allocations', allocations)
$$;

create function reservation_json(p_id text) returns jsonb language sql stable as $$
  select reservation_view(r, coalesce((
      select jsonb_agg(jsonb_build_object('id', a.id, 'nodeId', a.node_id, 'nodeName', n.name, 'devices', (
          select coalesce(jsonb_agg(jsonb_build_object('id', d.id, 'class', d.class, 'stableId', d.stable_id) order by d.class, d.slot, d.no), '[]')
          from (select device_no from device_bookings b where b.allocation_id = a.id
                union all select device_no from booking_history h where h.allocation_id = a.id) b
          join devices d on d.no = b.device_no)) order by a.id)
      from allocations a join nodes n on n.id = a.node_id where a.reservation_id = r.id), '[]'))
  from reservations r where r.id = p_id
$$;

-- The pool as seen by a tenant: its own, or one offered to it.
create function pool_visible(p_pool text, p_tenant text) returns setof pools language sql stable as $$
  select p.* from pools p where p.id = p_pool and (p.tenant_id = p_tenant or exists (
    select 1 from pool_offers o where o.pool_id = p.id and o.tenant_id = p_tenant))
$$;

-- A draft that nobody admits is abandoned after a day.
create function draft_wake(p_id text) returns void language sql as $$
  select wake('reservations', p_id, compute_now() + interval '1 day')
$$;

-- Round trip 1 of an admission: writes the request as a draft, so that policies decide on a row that exists, or finds
-- the row that an earlier try with the same key wrote.
-- p = {id, tenantId, identityId, key, fingerprint, poolId, name, labels, binding, devices, gang, spot, start, durationSeconds,
--      leaseSeconds, context}
-- Where selectors must be matched, p.candidates asks for the nodes to match them on (see placement_candidates).
-- Answers {found: 'new'|'draft'|'stored'|'mismatch'|'no-pool', id?, now, attributes?, candidates?, stored?}.
-- p_wake: whether to come back to a draft that was never admitted.
create function reservation_draft(p jsonb, p_wake boolean default true) returns jsonb language plpgsql as $$
declare
  pool pools;
  r reservations;
  fresh boolean;
  attributes jsonb;
begin
  select * into pool from pool_visible(p ->> 'poolId', p ->> 'tenantId');
  attributes := jsonb_strip_nulls((p -> 'attributes') || jsonb_build_object('pool', pool.id, 'class', pool.class, 'site', pool.site_id,
    'model', pool.gpu_model, 'region', (select s.iam_region from sites s where s.id = pool.site_id)));
  insert into reservations (id, tenant_id, identity_id, idempotency_key, fingerprint, pool_id, name, labels, binding,
      devices, gang, spot, starts_at, duration_seconds, lease_seconds, context)
    select p ->> 'id', p ->> 'tenantId', p ->> 'identityId', p ->> 'key', p ->> 'fingerprint', pool.id, p ->> 'name',
      coalesce(p -> 'labels', '{}'), p ->> 'binding', p -> 'devices', p -> 'gang', coalesce((p ->> 'spot')::boolean, false),
      (p ->> 'start')::timestamptz, (p ->> 'durationSeconds')::bigint,
      (p ->> 'leaseSeconds')::bigint, p -> 'context'
    where pool.id is not null
    on conflict do nothing
    returning * into r;
  fresh := r.id is not null;
  if not fresh then
    select * into r from reservations
      where tenant_id = p ->> 'tenantId' and identity_id = p ->> 'identityId' and idempotency_key = p ->> 'key';
    if not found then
      return jsonb_build_object('found', 'no-pool', 'now', compute_now());
    end if;
    if r.fingerprint <> p ->> 'fingerprint' then
      return jsonb_build_object('found', 'mismatch', 'now', compute_now());
    end if;
    if r.state <> 'draft' then
      -- The answer that was given then: the event of the same commit carries it.
      return jsonb_build_object('found', 'stored', 'now', compute_now(), 'stored', coalesce(
        (select e.data from events e where e.subject_id = r.id and e.type in ('reservation.booked', 'reservation.scheduled') order by e.seq limit 1),
        reservation_json(r.id)));
    end if;
    if pool.id is null then
      return jsonb_build_object('found', 'no-pool', 'now', compute_now());
    end if;
  else
    perform project('compute-reservation', r.id, r.tenant_id, 'compute-pool', r.pool_id, r.identity_id, attributes);
    if p_wake then
      perform draft_wake(r.id);
    end if;
  end if;
  return jsonb_build_object('found', case when fresh then 'new' else 'draft' end, 'id', r.id, 'now', compute_now(),
    'attributes', attributes,
    'candidates', case when p ? 'candidates' then placement_candidates(pool.id, p -> 'candidates', null, 32, tstzrange(
      coalesce(r.starts_at, compute_now()), coalesce(r.starts_at, compute_now()) + make_interval(secs => r.duration_seconds), '[)'),
      r.starts_at is null, false, false) end);
end $$;

-- Charges a tenant for n of a resource, or raises BC013 with what stood in the way. The row stays locked until commit.
create function quota_charge(p_tenant text, p_pool text, p_resource text, p_n bigint) returns void language plpgsql as $$
declare
  q quotas;
  owner text;
begin
  loop
    update quotas set used = used + p_n, updated_at = compute_now()
      where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource
        and (limit_count is null or used + p_n <= limit_count);
    if found then
      return;
    end if;
    select * into q from quotas where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource;
    if found then
      exit when q.used + p_n > q.limit_count;
      -- Written or given back between the two statements: there is room now.
      continue;
    end if;
    select tenant_id into owner from pools where id = p_pool;
    exit when owner is distinct from p_tenant;
    insert into quotas as i (tenant_id, pool_id, resource, limit_count, source, used)
      values (p_tenant, p_pool, p_resource, null, 'owner', p_n)
      on conflict (tenant_id, pool_id, resource) do update set used = i.used + excluded.used
      where i.limit_count is null or i.used + excluded.used <= i.limit_count;
    if found then
      return;
    end if;
  end loop;
  raise exception 'quota of % in pool % exceeded', p_resource, p_pool using errcode = 'BC013',
    detail = jsonb_build_object('resource', p_resource, 'limit', coalesce(q.limit_count, 0), 'used', coalesce(q.used, 0), 'wanted', p_n)::text;
end $$;

create function quota_refund(p_tenant text, p_pool text, p_resource text, p_n bigint) returns void language sql as $$
  update quotas set used = used - p_n, updated_at = compute_now()
  where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource
$$;
