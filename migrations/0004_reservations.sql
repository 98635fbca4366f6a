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
  -- [{class, count, selectors}], as asked for.
  devices jsonb not null,
  duration_seconds bigint not null,
  lease_seconds bigint,
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
  spec_generation bigint,
  active_at timestamptz,
  ended_at timestamptz,
  release_generation bigint,
  released_at timestamptz
) with (fillfactor = 70);
create index allocations_reservation on allocations (reservation_id);
create index allocations_live_node on allocations (node_id) where released_at is null;

-- One row a device and allocation. The constraint is the referee of the whole product: at most one live booking a
-- device and instant. Partial, so that history costs nothing; released rows move to booking_history in batches.
create table device_bookings (
  device_no bigint not null,
  allocation_id text not null,
  during tstzrange not null,
  released_at timestamptz,
  constraint device_bookings_pk primary key (allocation_id, device_no),
  constraint device_bookings_window_not_empty check (not isempty(during)),
  constraint device_bookings_no_overlap exclude using gist (device_no with =, during with &&) where (released_at is null)
);
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
    'binding', r.binding, 'durationSeconds', r.duration_seconds, 'leaseSeconds', r.lease_seconds,
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

-- A node with its devices, as place() reads it.
create function candidate_json(p_node text, p_classes text[]) returns jsonb language sql stable as $$
  select jsonb_build_object('nodeId', n.id, 'name', n.name, 'reasons', to_jsonb(n.unschedulable_reasons), 'devices', coalesce((
    select jsonb_agg(jsonb_build_object('no', d.no, 'class', d.class, 'slot', d.slot, 'attributes', d.attributes,
      'free', d.bookable and d.present and d.health = 'healthy' and d.allocation_id is null) order by d.class, d.slot, d.no)
    from devices d where d.node_id = n.id and d.class = any (p_classes)), '[]'))
  from nodes n where n.id = p_node
$$;

-- Nodes that may hold a request whose selectors place() must still decide: enough free of the lead class, and enough of
-- those equal in every attribute that a single part of the request asks to equal. Best fit first, behind p_after.
-- p_wants = [{class, count, equals: {attribute: value}}], lead first; p_after = {free, nodeId} or null.
create function placement_candidates(p_pool text, p_wants jsonb, p_after jsonb, p_limit int) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(candidate_json(c.node_id, array(select w ->> 'class' from jsonb_array_elements(p_wants) w))
      || jsonb_build_object('rank', c.free) order by c.free, c.node_id), '[]')
  from (
    select c.node_id, c.free from node_capacity c
    where c.pool_id = p_pool and c.class = p_wants -> 0 ->> 'class' and c.schedulable and c.free > 0
      and c.free >= (p_wants -> 0 ->> 'count')::int
      and (p_after is null or (c.free, c.node_id) > ((p_after ->> 'free')::int, p_after ->> 'nodeId'))
      and not exists (
        select 1 from jsonb_array_elements(p_wants) w where (w ->> 'count')::int > (
          select count(*) from devices d
          where d.node_id = c.node_id and d.class = w ->> 'class' and d.bookable and d.present and d.health = 'healthy'
            and d.allocation_id is null and d.attributes @> coalesce(w -> 'equals', '{}')))
    order by c.free, c.node_id limit p_limit) c
$$;

-- Some nodes of a pool whether they fit or not, the emptiest first: what a refusal is explained with.
create function placement_sample(p_pool text, p_classes text[], p_limit int) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(candidate_json(n.id, p_classes)), '[]') from (
    select id from nodes where pool_id = p_pool and state <> 'retired' order by schedulable desc, id limit p_limit) n
$$;

-- The same from the summaries alone, for a request without selectors: a full pool is refused often, and reading its
-- devices each time would cost more than admitting. Looks at p_limit nodes at most.
-- Answers {free, reasons: [{code, message, nodes, example}]}, most nodes first.
create function placement_refusals(p_pool text, p_wants jsonb, p_limit int) returns jsonb language sql stable as $$
  with looked as (
    select n.id, n.name, n.schedulable, n.unschedulable_reasons[1] as why from nodes n
    where n.pool_id = p_pool and n.state <> 'retired' order by n.id limit p_limit),
  judged as (
    select l.name, l.schedulable, coalesce(c.free, 0) as free,
      case when not l.schedulable then 'NODE_UNSCHEDULABLE'
        when coalesce(c.total, 0) < w.value::int then 'TOO_FEW_DEVICES' else 'DEVICES_IN_USE' end as code,
      case when not l.schedulable then l.why
        when coalesce(c.total, 0) < w.value::int then format('has %s %s, wanted %s', coalesce(c.total, 0), w.key, w.value)
        else format('%s matching %s free, wanted %s', c.free, w.key, w.value) end as message,
      row_number() over (partition by l.id order by coalesce(c.free, 0) >= w.value::int, w.key) as rank
    from looked l cross join jsonb_each_text(p_wants) w
    left join node_capacity c on c.node_id = l.id and c.class = w.key)
  select jsonb_build_object(
    'free', coalesce((select sum(free) from judged where schedulable), 0),
    'reasons', coalesce((select jsonb_agg(jsonb_build_object('code', code, 'message', message, 'nodes', nodes, 'example', example)
        order by nodes desc, message) from (
      select code, message, count(*) as nodes, min(name) as example from judged where rank = 1
      group by code, message order by count(*) desc, message limit 16) grouped), '[]'))
$$;

-- A draft that nobody admits is abandoned after a day.
create function draft_wake(p_id text) returns void language sql as $$
  select wake('reservations', p_id, compute_now() + interval '1 day')
$$;

-- Round trip 1 of an admission: writes the request as a draft, so that policies decide on a row that exists, or finds
-- the row that an earlier try with the same key wrote.
-- p = {id, tenantId, identityId, key, fingerprint, poolId, name, labels, binding, devices, durationSeconds, leaseSeconds, context}
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
      devices, duration_seconds, lease_seconds, context)
    select p ->> 'id', p ->> 'tenantId', p ->> 'identityId', p ->> 'key', p ->> 'fingerprint', pool.id, p ->> 'name',
      coalesce(p -> 'labels', '{}'), p ->> 'binding', p -> 'devices', (p ->> 'durationSeconds')::bigint,
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
        (select e.data from events e where e.subject_id = r.id and e.type = 'reservation.booked' order by e.seq limit 1),
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
    'candidates', case when p ? 'candidates' then placement_candidates(pool.id, p -> 'candidates', null, 32) end);
end $$;

-- Charges a tenant for n of a resource, or raises BC013 with what stood in the way. The row stays locked until commit.
create function quota_charge(p_tenant text, p_pool text, p_resource text, p_n bigint) returns void language plpgsql as $$
declare
  q quotas;
  owner text;
begin
  update quotas set used = used + p_n, updated_at = compute_now()
    where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource
      and (limit_count is null or used + p_n <= limit_count);
  if found then
    return;
  end if;
  select * into q from quotas where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource;
  if not found then
    select tenant_id into owner from pools where id = p_pool;
    if owner = p_tenant then
      insert into quotas as i (tenant_id, pool_id, resource, limit_count, source, used)
        values (p_tenant, p_pool, p_resource, null, 'owner', p_n)
        on conflict (tenant_id, pool_id, resource) do update set used = i.used + excluded.used;
      return;
    end if;
  end if;
  raise exception 'quota of % in pool % exceeded', p_resource, p_pool using errcode = 'BC013',
    detail = jsonb_build_object('resource', p_resource, 'limit', coalesce(q.limit_count, 0), 'used', coalesce(q.used, 0), 'wanted', p_n)::text;
end $$;

create function quota_refund(p_tenant text, p_pool text, p_resource text, p_n bigint) returns void language sql as $$
  update quotas set used = used - p_n, updated_at = compute_now()
  where tenant_id = p_tenant and pool_id = p_pool and resource = p_resource
$$;

-- Books n free devices of each class on one node, inside the caller's transaction. Locks: capacity rows of the node by
-- class, then devices by number. p_wants = {class: count}; p_devices = the device numbers to take, or null for the first
-- free ones. Returns the devices as reservation_json() shows them, or null when the node cannot hold the request (nothing
-- was changed then).
create function node_take(p_node text, p_wants jsonb, p_devices bigint[], p_allocation text, p_during tstzrange)
returns jsonb language plpgsql as $$
declare
  wanted int := (select sum(value::int) from jsonb_each_text(p_wants));
  locked int;
  taken bigint[];
  booked int;
  shown jsonb;
begin
  select count(*) into locked from (
    select c.class from node_capacity c
      where c.node_id = p_node and c.schedulable and p_wants ? c.class and c.free >= (p_wants ->> c.class)::int
      order by c.class for update skip locked) l;
  if locked < (select count(*) from jsonb_object_keys(p_wants)) then
    return null;
  end if;
  if p_devices is null then
    select array_agg(no order by no) into taken from (
      select d.no, row_number() over (partition by d.class order by d.slot, d.no) as i, (p_wants ->> d.class)::int as n
      from devices d
      where d.node_id = p_node and p_wants ? d.class and d.bookable and d.present and d.health = 'healthy' and d.allocation_id is null) f
    where f.i <= f.n;
  else
    select array_agg(d.no order by d.no) into taken from devices d
      where d.node_id = p_node and d.no = any (p_devices) and p_wants ? d.class and d.bookable and d.present
        and d.health = 'healthy' and d.allocation_id is null;
  end if;
  if coalesce(cardinality(taken), 0) <> wanted then
    return null;
  end if;
  -- A plain insert into a table with a GiST EXCLUDE deadlocks under contention; DO NOTHING inserts speculatively.
  insert into device_bookings (device_no, allocation_id, during)
    select u.no, p_allocation, p_during from unnest(taken) as u (no) order by u.no
    on conflict do nothing;
  get diagnostics booked = row_count;
  if booked <> wanted then
    raise exception 'a device of % was taken meanwhile', p_node using errcode = '23P01', constraint = 'device_bookings_no_overlap';
  end if;
  with held as (
    update devices set allocation_id = p_allocation where no = any (taken) returning id, class, stable_id, slot, no)
  select jsonb_agg(jsonb_build_object('id', id, 'class', class, 'stableId', stable_id) order by class, slot, no) into shown from held;
  update node_capacity c set free = free - (p_wants ->> c.class)::int, allocated = allocated + (p_wants ->> c.class)::int
    where c.node_id = p_node and p_wants ? c.class;
  return shown;
end $$;

-- The index walk: the schedulable node of the pool that holds the request and has the least left over of its scarcest
-- class, that nobody else is booking on at this instant. Costs the same at 1,000 and 50,000 nodes.
create function node_walk(p_pool text, p_wants jsonb, p_lead text, p_skip text[]) returns text language sql as $$
  select c.node_id from node_capacity c
  where c.pool_id = p_pool and c.class = p_lead and c.schedulable and c.free > 0 and c.free >= (p_wants ->> p_lead)::int
    and c.node_id <> all (p_skip)
    and not exists (
      select 1 from jsonb_each_text(p_wants) w where w.key <> p_lead and not exists (
        select 1 from node_capacity o where o.node_id = c.node_id and o.class = w.key and o.free >= w.value::int))
  order by c.free, c.node_id limit 1 for update skip locked
$$;

-- The same without a lock: is there any such node, locked or not?
create function node_candidate(p_pool text, p_wants jsonb, p_lead text, p_skip text[]) returns text language sql stable as $$
  select c.node_id from node_capacity c
  where c.pool_id = p_pool and c.class = p_lead and c.schedulable and c.free > 0 and c.free >= (p_wants ->> p_lead)::int
    and c.node_id <> all (p_skip)
    and not exists (
      select 1 from jsonb_each_text(p_wants) w where w.key <> p_lead and not exists (
        select 1 from node_capacity o where o.node_id = c.node_id and o.class = w.key and o.free >= w.value::int))
  order by c.free, c.node_id limit 1
$$;

-- Round trip 2 of an admission, after IAM allowed the draft: place, book, charge, and everything that goes with it, in
-- this one transaction. All or nothing. Its statements, and those of the functions it calls, are planned once a connection:
-- Postgres would plan some of them anew at each call, for the same plan.
-- p = {id, allocationId, policyEpoch?, wants: {class: n}, lead: class, proposals?: [{nodeId, deviceNos}], context, actor, traceparent?}
-- Answers {done: true, reservation} or {done: false, why: 'no-fit'|'not-draft'|'gone'}.
create function reservation_admit(p jsonb) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare
  r reservations;
  wants jsonb := p -> 'wants';
  at timestamptz := compute_now();
  node text;
  skip text[] := '{}';
  taken jsonb;
  proposal jsonb;
  during tstzrange;
  w record;
  view jsonb;
begin
  if p ? 'policyEpoch' then
    perform policy_fence((p ->> 'policyEpoch')::bigint);
  end if;
  select * into r from reservations where id = p ->> 'id' for update;
  if not found then
    return jsonb_build_object('done', false, 'why', 'gone');
  end if;
  if r.state <> 'draft' then
    return jsonb_build_object('done', true, 'reservation', reservation_json(r.id), 'replayed', true);
  end if;
  during := tstzrange(at, at + make_interval(secs => r.duration_seconds), '[)');
  if p ? 'proposals' then
    for proposal in select * from jsonb_array_elements(p -> 'proposals') loop
      node := proposal ->> 'nodeId';
      taken := node_take(node, wants, (select array_agg(x::bigint) from jsonb_array_elements_text(proposal -> 'deviceNos') x),
        p ->> 'allocationId', during);
      exit when taken is not null;
    end loop;
  else
    for attempt in 1..5 loop
      node := node_walk(r.pool_id, wants, p ->> 'lead', skip);
      exit when node is null;
      taken := node_take(node, wants, null, p ->> 'allocationId', during);
      exit when taken is not null;
      skip := skip || node;
    end loop;
    -- Locked is not full: before a refusal, wait for those who are booking and look again.
    if taken is null then
      skip := '{}';
      for attempt in 1..16 loop
        node := node_candidate(r.pool_id, wants, p ->> 'lead', skip);
        exit when node is null;
        perform 1 from node_capacity where node_id = node and wants ? class order by class for update;
        taken := node_take(node, wants, null, p ->> 'allocationId', during);
        exit when taken is not null;
      end loop;
    end if;
  end if;
  if taken is null then
    return jsonb_build_object('done', false, 'why', 'no-fit');
  end if;
  insert into allocations (id, reservation_id, tenant_id, pool_id, node_id)
    values (p ->> 'allocationId', r.id, r.tenant_id, r.pool_id, node);
  update reservations set starts_at = lower(during), ends_at = upper(during), context = p -> 'context',
    lease_expires_at = at + make_interval(secs => r.lease_seconds) where id = r.id;
  perform transition_reservation(r.id, 'admit', p ->> 'actor');
  select * into r from reservations where id = r.id;
  view := reservation_view(r, jsonb_build_array(jsonb_build_object('id', p ->> 'allocationId', 'nodeId', node,
    'nodeName', (select name from nodes where id = node), 'devices', taken)));
  perform emit('reservation.booked', r.tenant_id, 'reservation', r.id, view, p ->> 'traceparent');
  perform wake('nodes.spec', node);
  perform wake('reservations', r.id);
  perform audit(r.tenant_id, 'compute:reservations:create', 'compute-reservation', r.id, 'allow', p -> 'context',
    jsonb_build_object('nodeId', node));
  -- Last, since the row stays locked through the commit; sorted, so that two admissions never wait crosswise.
  for w in select key, value::bigint as n from jsonb_each_text(wants) order by key loop
    perform quota_charge(r.tenant_id, r.pool_id, w.key, w.n);
  end loop;
  return jsonb_build_object('done', true, 'reservation', view, 'nodeId', node);
end $$;

-- Both round trips as one, where IAM could decide ahead: p_expected are the attributes it decided on. A draft that turns
-- out to have others is written and no more, and is decided on as it is.
-- Answers as reservation_draft() does, with `admitted` as reservation_admit() answers.
create function reservation_create(p_draft jsonb, p_expected jsonb, p_admit jsonb) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare
  d jsonb := reservation_draft(p_draft, false);
  admitted jsonb;
begin
  if d ->> 'found' in ('new', 'draft') and d -> 'attributes' = p_expected then
    admitted := reservation_admit(p_admit);
    d := d || jsonb_build_object('admitted', admitted);
  end if;
  if d ->> 'found' = 'new' and (admitted ->> 'done')::boolean is not true then
    perform draft_wake(d ->> 'id');
  end if;
  return d;
end $$;

-- An allocation's devices are let go: the node confirmed it, or was fenced. Books, summaries and quota follow in the
-- same transaction.
create function allocation_settle(p_allocation text) returns boolean language plpgsql as $$
declare
  a allocations;
  held jsonb;
  w record;
begin
  select * into a from allocations where id = p_allocation for update;
  if not found or a.released_at is not null then
    return false;
  end if;
  perform node_lock(array[a.node_id]);
  select jsonb_object_agg(class, n) into held from (
    select d.class, count(*) as n from device_bookings b join devices d on d.no = b.device_no
    where b.allocation_id = a.id and b.released_at is null group by d.class) h;
  update devices set allocation_id = null
    where no = any (array(select device_no from device_bookings where allocation_id = a.id)) and allocation_id = a.id;
  update device_bookings set released_at = compute_now() where allocation_id = a.id and released_at is null;
  update allocations set released_at = compute_now(), ended_at = coalesce(ended_at, compute_now()) where id = a.id;
  perform node_refresh(a.node_id);
  for w in select key, value::bigint as n from jsonb_each_text(coalesce(held, '{}')) order by key loop
    perform quota_refund(a.tenant_id, a.pool_id, w.key, w.n);
  end loop;
  return true;
end $$;

-- The gateway's word on what a node has done, fenced by the session's epoch. Wakes everything that waits for it.
create function node_observed(p_node text, p_epoch bigint, p_generation bigint) returns boolean language plpgsql as $$
begin
  update nodes set observed_generation = p_generation, observed_at = compute_now()
    where id = p_node and epoch = p_epoch and observed_generation < p_generation;
  if not found then
    perform 1 from nodes where id = p_node and epoch = p_epoch;
    if not found then
      raise exception 'node % has a newer session than epoch %', p_node, p_epoch using errcode = 'BC001', constraint = 'nodes_epoch';
    end if;
    return false;
  end if;
  perform wake('nodes.health', p_node);
  perform wake('reservations', r) from (
    select distinct a.reservation_id as r from allocations a
    where a.node_id = p_node and a.released_at is null
      and ((a.active_at is null and a.spec_generation <= p_generation) or a.release_generation <= p_generation)
    order by 1) waiting;
  return true;
end $$;
