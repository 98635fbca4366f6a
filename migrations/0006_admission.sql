-- Admitting a reservation, beginning its window, letting its devices go.

-- Round trip 2 of an admission, after IAM allowed the draft: place, book, charge, and everything that goes with it, in
-- this one transaction. All or nothing. Its statements, and those of the functions it calls, are planned once a connection:
-- Postgres would plan some of them anew at each call, for the same plan.
-- p = {id, allocationIds: [a node], policyEpoch?, wants: {class: n}, lead: class, proposals?: [{nodeId, deviceNos}], overSpot?: true, context, actor, traceparent?}
-- Answers {done: true, reservation} or {done: false, why: 'no-fit'|'gone'|'past'|'far'}.
create function reservation_admit(p jsonb) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare
  r reservations;
  wants jsonb := p -> 'wants';
  at timestamptz := compute_now();
  hold boolean;
  during tstzrange;
  span tstzrange;
  notice interval;
  node text;
  taken jsonb;
  proposal jsonb;
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
  if r.starts_at <= at or r.starts_at > at + interval '366 days' then
    return jsonb_build_object('done', false, 'why', case when r.starts_at <= at then 'past' else 'far' end);
  end if;
  hold := r.starts_at is null;
  notice := make_interval(secs => (select spot_notice_seconds from pools where id = r.pool_id));
  -- Over spot, what was wanted at once begins when the notice is over.
  if p ? 'overSpot' and hold then
    r.starts_at := at + notice;
    hold := false;
  end if;
  r.starts_at := coalesce(r.starts_at, at);
  r.ends_at := r.starts_at + make_interval(secs => r.duration_seconds);
  r.lease_expires_at := r.starts_at + make_interval(secs => r.lease_seconds);
  during := tstzrange(r.starts_at, r.ends_at, '[)');
  if r.gang is not null then
    taken := gang_take(r, p -> 'allocationIds', wants, p ->> 'lead', hold);
  elsif p ? 'proposals' then
    for proposal in select * from jsonb_array_elements(p -> 'proposals') loop
      taken := node_take(r.id, r.tenant_id, r.pool_id, during, p -> 'allocationIds' ->> 0, proposal ->> 'nodeId', wants,
        (select array_agg(x::bigint) from jsonb_array_elements_text(proposal -> 'deviceNos') x), hold, r.spot, p ? 'overSpot');
      exit when taken is not null;
    end loop;
    taken := nullif(jsonb_build_array(taken), '[null]');
  else
    taken := nullif(jsonb_build_array(single_take(r.id, r.tenant_id, r.pool_id, during,
      p -> 'allocationIds' ->> 0, wants, p ->> 'lead', hold, r.spot)), '[null]');
  end if;
  -- Nothing else fits: spot reservations give way, if there is the time to tell them.
  if taken is null and not r.spot and r.gang is null and not p ? 'proposals' and (hold or r.starts_at >= at + notice) then
    span := case when hold then tstzrange(at + notice, at + notice + make_interval(secs => r.duration_seconds), '[)') else during end;
    node := node_over_spot(r.pool_id, wants, p ->> 'lead', span);
    if node is not null then
      perform 1 from node_capacity where node_id = node and wants ? class order by class for update;
      taken := nullif(jsonb_build_array(node_take(r.id, r.tenant_id, r.pool_id, span, p -> 'allocationIds' ->> 0, node, wants, null,
        false, false, true)), '[null]');
      if taken is not null and hold then
        hold := false;
        r.starts_at := lower(span);
        r.ends_at := upper(span);
        r.lease_expires_at := r.starts_at + make_interval(secs => r.lease_seconds);
      end if;
    end if;
  end if;
  if taken is null then
    return jsonb_build_object('done', false, 'why', 'no-fit');
  end if;
  update reservations set starts_at = r.starts_at, ends_at = r.ends_at, context = p -> 'context', lease_expires_at = r.lease_expires_at
    where id = r.id;
  perform transition_reservation(r.id, case when hold then 'admit' else 'schedule' end, p ->> 'actor');
  select * into r from reservations where id = r.id;
  view := reservation_view(r, taken);
  perform emit(case when hold then 'reservation.booked' else 'reservation.scheduled' end, r.tenant_id, 'reservation', r.id, view, p ->> 'traceparent');
  if not hold then
    perform wake('reservations', r.id, greatest(at, r.starts_at - interval '15 minutes'));
  else
    if r.gang is null then
      perform wake('nodes.spec', taken -> 0 ->> 'nodeId');
    else
      perform wake('nodes.spec', a ->> 'nodeId') from jsonb_array_elements(taken) a order by a ->> 'nodeId';
    end if;
    perform wake('reservations', r.id);
  end if;
  perform audit(r.tenant_id, 'compute:reservations:create', 'compute-reservation', r.id, 'allow', p -> 'context',
    jsonb_build_object('nodeIds', jsonb_path_query_array(taken, '$[*].nodeId')));
  -- Last, since the row stays locked through the commit; sorted, so that two admissions never wait crosswise.
  if r.gang is not null then
    select jsonb_object_agg(class, n) into wants from (
      select d ->> 'class' as class, count(*) as n
      from jsonb_array_elements(taken) a, jsonb_array_elements(a -> 'devices') d group by 1) c;
  end if;
  for w in select key, value::bigint as n from jsonb_each_text(wants) order by key loop
    perform quota_charge(r.tenant_id, r.pool_id, w.key, w.n);
  end loop;
  return jsonb_build_object('done', true, 'reservation', view);
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

-- The window of an allocation begins: its devices pass into its hands. False while somebody else still has one of them:
-- over in the books, and not yet let go.
create function allocation_begin(p_allocation text) returns boolean language plpgsql as $$
declare
  a allocations;
begin
  select * into a from allocations where id = p_allocation for update;
  if not found or a.released_at is not null then
    return false;
  end if;
  if a.held_at is not null then
    return true;
  end if;
  perform node_lock(array[a.node_id]);
  if exists (select 1 from devices d join device_bookings b on b.device_no = d.no
      where b.allocation_id = a.id and d.allocation_id is not null) then
    return false;
  end if;
  update devices set allocation_id = a.id, claims = claims - 1
    where no = any (array(select device_no from device_bookings where allocation_id = a.id));
  update allocations set held_at = compute_now() where id = a.id;
  perform node_refresh(a.node_id);
  return true;
end $$;

-- What is wrong with the hardware of an allocation, in words; [] when nothing is.
create function allocation_ailing(p_allocation text) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(why order by why), '[]') from (
    select u.why from allocations a join nodes n on n.id = a.node_id, unnest(n.unschedulable_reasons) u (why)
    where a.id = p_allocation
    union all
    select format('%s %s is %s', d.class, d.stable_id, case when not d.present then 'gone' when not d.bookable then 'not bookable'
      else d.health || coalesce(': ' || d.health_reason, '') end)
    from device_bookings b join devices d on d.no = b.device_no
    where b.allocation_id = p_allocation and not (d.present and d.bookable and d.health = 'healthy')) x
$$;

-- An allocation whose window has not begun is given up for another: nothing of it was ever held, so nothing stays of it.
create function allocation_drop(p_allocation text) returns void language plpgsql as $$
declare
  a allocations;
begin
  select * into strict a from allocations where id = p_allocation and held_at is null and released_at is null for update;
  perform node_lock(array[a.node_id]);
  update devices set claims = claims - 1
    where no = any (array(select device_no from device_bookings where allocation_id = a.id));
  delete from device_bookings where allocation_id = a.id;
  delete from allocations where id = a.id;
  perform node_refresh(a.node_id);
end $$;

-- An allocation's devices are let go: the node confirmed it, or was fenced, or never had them. Books, summaries and quota
-- follow in the same transaction.
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
  if a.held_at is null then
    update devices set claims = claims - 1
      where no = any (array(select device_no from device_bookings where allocation_id = a.id));
  else
    update devices set allocation_id = null
      where no = any (array(select device_no from device_bookings where allocation_id = a.id)) and allocation_id = a.id;
  end if;
  update device_bookings set released_at = compute_now() where allocation_id = a.id and released_at is null;
  -- Whose window has begun and who waited for these devices.
  perform wake('reservations', waiting.reservation_id) from (
    select distinct n.reservation_id from device_bookings b
    join device_bookings o on o.device_no = b.device_no and o.released_at is null and lower(o.during) <= compute_now()
    join allocations n on n.id = o.allocation_id and n.held_at is null
    where b.allocation_id = a.id order by 1) waiting;
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
