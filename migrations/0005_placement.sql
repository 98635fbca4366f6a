-- Finding devices and taking them.
--
-- A device is open for a window when it is fit for work and nobody's: neither held nor booked at all, or (where it is to
-- be held at once) held by nobody, and no live booking of it overlaps the window. The first is what summaries count and an
-- index walk finds at any fleet size; the second looks at bookings, node by node, once the first found nothing.

-- A node with its devices, as place() reads it.
create function candidate_json(p_node text, p_classes text[], p_during tstzrange, p_hold boolean, p_over_spot boolean default false) returns jsonb language sql stable as $$
  select jsonb_build_object('nodeId', n.id, 'name', n.name, 'reasons', to_jsonb(n.unschedulable_reasons), 'devices', coalesce((
    select jsonb_agg(jsonb_build_object('no', d.no, 'class', d.class, 'slot', d.slot, 'attributes', d.attributes,
      'free', d.bookable and d.present and d.health = 'healthy' and (d.allocation_id is null and d.claims = 0
        or (not p_hold or d.allocation_id is null) and not exists (
          select 1 from device_bookings b where b.device_no = d.no and b.released_at is null and meets(b.during, p_during)
            and not (p_over_spot and b.spot))))
      order by d.class, d.slot, d.no)
    from devices d where d.node_id = n.id and d.class = any (p_classes)), '[]'))
  from nodes n where n.id = p_node
$$;

-- Nodes that may hold a request whose selectors place() must still decide: enough open of each class, and enough of those
-- equal in every attribute that a single part of the request asks to equal. p_any = false: nodes with enough that are
-- nobody's at all, best fit first; true: every other node of the pool too, by id. Behind p_after.
-- p_wants = [{class, count, equals: {attribute: value}}], lead first; p_after = {free, nodeId} or null.
create function placement_candidates(p_pool text, p_wants jsonb, p_after jsonb, p_limit int, p_during tstzrange, p_hold boolean,
  p_any boolean, p_over_spot boolean) returns jsonb language plpgsql stable as $$
declare
  lead constant text := p_wants -> 0 ->> 'class';
  n constant int := (p_wants -> 0 ->> 'count')::int;
  classes constant text[] := array(select w ->> 'class' from jsonb_array_elements(p_wants) w);
begin
  if not p_any then
    return (select coalesce(jsonb_agg(candidate_json(c.node_id, classes, p_during, p_hold)
        || jsonb_build_object('rank', c.free) order by c.free, c.node_id), '[]')
      from (
        select c.node_id, c.free from node_capacity c
        where c.pool_id = p_pool and c.class = lead and c.schedulable and c.free > 0 and c.free >= n
          and (p_after is null or (c.free, c.node_id) > ((p_after ->> 'free')::int, p_after ->> 'nodeId'))
          and not exists (
            select 1 from jsonb_array_elements(p_wants) w where (w ->> 'count')::int > (
              select count(*) from devices d
              where d.node_id = c.node_id and d.class = w ->> 'class' and d.bookable and d.present and d.health = 'healthy'
                and d.allocation_id is null and d.claims = 0 and d.attributes @> coalesce(w -> 'equals', '{}')))
        order by c.free, c.node_id limit p_limit) c);
  end if;
  return (select coalesce(jsonb_agg(candidate_json(c.node_id, classes, p_during, p_hold, p_over_spot)
      || jsonb_build_object('rank', 0) order by c.node_id), '[]')
    from (
      select c.node_id from node_capacity c
      where c.pool_id = p_pool and c.class = lead and c.schedulable and c.allocatable >= n
        and (p_after is null or c.node_id > p_after ->> 'nodeId')
        and not exists (
          select 1 from jsonb_array_elements(p_wants) w where (w ->> 'count')::int > (
            select count(*) from devices d
            where d.node_id = c.node_id and d.class = w ->> 'class' and d.bookable and d.present and d.health = 'healthy'
              and (not p_hold or d.allocation_id is null) and d.attributes @> coalesce(w -> 'equals', '{}')
              and not exists (select 1 from device_bookings b
                where b.device_no = d.no and b.released_at is null and meets(b.during, p_during) and not (p_over_spot and b.spot))))
      order by c.node_id limit p_limit) c);
end $$;

-- Some nodes of a pool whether they fit or not, the emptiest first: what a refusal is explained with.
create function placement_sample(p_pool text, p_classes text[], p_limit int, p_during tstzrange, p_hold boolean) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(candidate_json(n.id, p_classes, p_during, p_hold)), '[]') from (
    select id from nodes where pool_id = p_pool and state <> 'retired' order by schedulable desc, id limit p_limit) n
$$;

-- The same from the summaries alone, for a request that wants devices at once and without selectors: a full pool is
-- refused often, and reading its devices each time would cost more than admitting. Looks at p_limit nodes at most.
-- Answers {free, reasons: [{code, message, nodes, example}]}, most nodes first.
create function placement_refusals(p_pool text, p_wants jsonb, p_limit int) returns jsonb language sql stable as $$
  with looked as (
    select n.id, n.name, n.schedulable, n.unschedulable_reasons[1] as why from nodes n
    where n.pool_id = p_pool and n.state <> 'retired' order by n.id limit p_limit),
  judged as (
    select l.name, l.schedulable, coalesce(c.free, 0) as free,
      case when not l.schedulable then 'NODE_UNSCHEDULABLE'
        when coalesce(c.total, 0) < w.value::int then 'TOO_FEW_DEVICES'
        when c.free + c.claimed >= w.value::int then 'DEVICES_BOOKED' else 'DEVICES_IN_USE' end as code,
      case when not l.schedulable then l.why
        when coalesce(c.total, 0) < w.value::int then format('has %s %s, wanted %s', coalesce(c.total, 0), w.key, w.value)
        when c.free + c.claimed >= w.value::int then format('%s %s free for so long, %s more until a booking begins, wanted %s', c.free, w.key, c.claimed, w.value)
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

-- Books n open devices of each class on one node for a window, inside the caller's transaction, as a new allocation; held
-- at once or when the window begins. Locks: capacity rows of the node by class, then devices by number. p_wants = {class:
-- count}; p_devices = the device numbers to take, or null for the first open ones. Returns the allocation as
-- reservation_json() shows it, or null when the node cannot hold the request or somebody is booking on it (nothing was
-- changed then).
-- What would be lost if the spot reservation that has a device gave way: seconds of work of all its devices, then the
-- younger one first, as one sortable text; null when none has it in this window.
create function spot_loss(p_device bigint, p_during tstzrange) returns text language sql stable as $$
  select to_char(floor(extract(epoch from compute_now() - coalesce(a.active_at, compute_now())))
      * (select count(*) from device_bookings x where x.allocation_id = a.id), 'FM000000000000')
    || to_char(1e12 - floor(extract(epoch from a.created_at)), 'FM000000000000') || a.id
  from device_bookings b join allocations a on a.id = b.allocation_id
  where b.device_no = p_device and b.released_at is null and b.spot and meets(b.during, p_during) limit 1
$$;

-- Tells a spot reservation to give way at p_at: its books end then, to the microsecond at which the next one's begin.
create function spot_preempt(p_reservation text, p_at timestamptz) returns void language plpgsql as $$
declare
  r reservations;
begin
  update reservations set ends_at = p_at, preempted_at = compute_now() where id = p_reservation returning * into r;
  update device_bookings b set during = tstzrange(lower(b.during), p_at, '[)'), spot = false
    from allocations a where a.reservation_id = r.id and b.allocation_id = a.id and b.released_at is null;
  perform emit('reservation.preempted', r.tenant_id, 'reservation', r.id, jsonb_build_object('id', r.id, 'endsAt', instant(p_at)));
  perform wake('reservations', r.id);
end $$;

create function node_take(p_reservation text, p_tenant text, p_pool text, p_during tstzrange, p_allocation text, p_node text,
  p_wants jsonb, p_devices bigint[], p_hold boolean, p_spot boolean, p_over_spot boolean) returns jsonb language plpgsql as $$
declare
  wanted int := (select sum(value::int) from jsonb_each_text(p_wants));
  locked int;
  taken bigint[];
  -- All of them are nobody's: the summaries change by known numbers.
  plain boolean;
  booked int;
  shown jsonb;
begin
  select count(*) into locked from (
    select c.class from node_capacity c
      where c.node_id = p_node and c.schedulable and p_wants ? c.class and c.allocatable >= (p_wants ->> c.class)::int
      order by c.class for update skip locked) l;
  if locked < (select count(*) from jsonb_object_keys(p_wants)) then
    return null;
  end if;
  -- What is nobody's, by far the most frequent answer, needs no look at bookings.
  if p_hold then
    select array_agg(no order by no), true into taken, plain from (
      select d.no, row_number() over (partition by d.class order by d.slot, d.no) as i, (p_wants ->> d.class)::int as n
      from devices d
      where d.node_id = p_node and p_wants ? d.class and d.bookable and d.present and d.health = 'healthy'
        and d.allocation_id is null and d.claims = 0 and (p_devices is null or d.no = any (p_devices))) f
    where f.i <= f.n;
  end if;
  -- A window to come leaves what is nobody's to others where it can.
  if coalesce(cardinality(taken), 0) <> wanted then
    select array_agg(no order by no), bool_and(idle) into taken, plain from (
      select o.no, o.idle, row_number() over (partition by o.class order by o.idle <> p_hold, o.lost nulls first, o.slot, o.no) as i,
        (p_wants ->> o.class)::int as n
      from (
        select d.no, d.class, d.slot, d.allocation_id is null and d.claims = 0 as idle,
          case when p_over_spot then spot_loss(d.no, p_during) end as lost
        from devices d
        where d.node_id = p_node and p_wants ? d.class and d.bookable and d.present and d.health = 'healthy'
          and (p_devices is null or d.no = any (p_devices))
          and (d.allocation_id is null and d.claims = 0
            or (not p_hold or d.allocation_id is null) and not exists (
              select 1 from device_bookings b where b.device_no = d.no and b.released_at is null and meets(b.during, p_during)
                and not (p_over_spot and b.spot)))) o) f
    where f.i <= f.n;
  end if;
  if coalesce(cardinality(taken), 0) <> wanted then
    return null;
  end if;
  if p_over_spot then
    perform spot_preempt(v.reservation_id, lower(p_during)) from (
      select distinct a.reservation_id from device_bookings b join allocations a on a.id = b.allocation_id
      where b.device_no = any (taken) and b.released_at is null and b.spot and meets(b.during, p_during) order by 1) v;
  end if;
  -- A plain insert into a table with a GiST EXCLUDE deadlocks under contention; DO NOTHING inserts speculatively.
  insert into device_bookings (device_no, allocation_id, during, spot)
    select u.no, p_allocation, p_during, p_spot from unnest(taken) as u (no) order by u.no
    on conflict do nothing;
  get diagnostics booked = row_count;
  if booked <> wanted then
    raise exception 'a device of % was taken meanwhile', p_node using errcode = '23P01', constraint = 'device_bookings_no_overlap';
  end if;
  insert into allocations (id, reservation_id, tenant_id, pool_id, node_id, held_at)
    values (p_allocation, p_reservation, p_tenant, p_pool, p_node, case when p_hold then compute_now() end);
  with held as (
    update devices set allocation_id = case when p_hold then p_allocation else allocation_id end,
      claims = case when p_hold then claims else claims + 1 end
    where no = any (taken) returning id, class, stable_id, slot, no)
  select jsonb_agg(jsonb_build_object('id', id, 'class', class, 'stableId', stable_id) order by class, slot, no) into shown from held;
  if plain then
    update node_capacity c set free = free - (p_wants ->> c.class)::int,
        allocated = allocated + case when p_hold then (p_wants ->> c.class)::int else 0 end,
        claimed = claimed + case when p_hold then 0 else (p_wants ->> c.class)::int end
      where c.node_id = p_node and p_wants ? c.class;
  else
    perform capacity_recount(p_node, p_pool, true);
  end if;
  return jsonb_build_object('id', p_allocation, 'nodeId', p_node, 'nodeName', (select name from nodes where id = p_node), 'devices', shown);
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

-- The first node by id whose devices are open for a window, though others have or will have them at other times.
-- p_busy: only among nodes with devices booked for later, or held now where that may end first; p_limit of them at most.
create function node_window(p_pool text, p_wants jsonb, p_lead text, p_skip text[], p_during tstzrange, p_hold boolean, p_busy boolean, p_limit int)
returns text language plpgsql stable as $$
declare
  n constant int := (p_wants ->> p_lead)::int;
  c record;
begin
  for c in
    select k.node_id from node_capacity k
    where k.pool_id = p_pool and k.class = p_lead and k.schedulable and k.allocatable >= n and k.node_id <> all (p_skip)
      and (not p_hold or k.free + k.claimed >= n)
      and (not p_busy or k.claimed > 0 or not p_hold and k.allocated > 0)
    order by k.node_id limit p_limit
  loop
    if not exists (
      select 1 from jsonb_each_text(p_wants) w where w.value::int > (
        select count(*) from devices d
        where d.node_id = c.node_id and d.class = w.key and d.bookable and d.present and d.health = 'healthy'
          and (not p_hold or d.allocation_id is null)
          and not exists (select 1 from device_bookings b
            where b.device_no = d.no and b.released_at is null and meets(b.during, p_during))))
    then
      return c.node_id;
    end if;
  end loop;
  return null;
end $$;

-- The node where a request fits if spot reservations give way, and where the least work is lost.
create function node_over_spot(p_pool text, p_wants jsonb, p_lead text, p_during tstzrange) returns text language sql stable as $$
  with fits as (
    select k.node_id from node_capacity k
    where k.pool_id = p_pool and k.class = p_lead and k.schedulable and k.allocatable >= (p_wants ->> p_lead)::int
      and exists (select 1 from devices d join device_bookings b on b.device_no = d.no and b.released_at is null and b.spot
        where d.node_id = k.node_id and d.class = p_lead)
      and not exists (
        select 1 from jsonb_each_text(p_wants) w where w.value::int > (
          select count(*) from devices d
          where d.node_id = k.node_id and d.class = w.key and d.bookable and d.present and d.health = 'healthy'
            and not exists (select 1 from device_bookings b
              where b.device_no = d.no and b.released_at is null and meets(b.during, p_during) and not b.spot)))),
  losing as (
    select f.node_id, x.lost from fits f cross join lateral (
      select spot_loss(d.no, p_during) as lost,
        row_number() over (partition by d.class order by spot_loss(d.no, p_during) nulls first) as i, (p_wants ->> d.class)::int as n
      from devices d
      where d.node_id = f.node_id and p_wants ? d.class and d.bookable and d.present and d.health = 'healthy'
        and not exists (select 1 from device_bookings b
          where b.device_no = d.no and b.released_at is null and meets(b.during, p_during) and not b.spot)) x
    where x.i <= x.n and x.lost is not null group by 1, 2)
  select node_id from losing group by node_id
  order by sum(left(lost, 12)::bigint), array_agg(lost order by lost), node_id limit 1
$$;

-- One node for a request without selectors, taken; null when there is none.
create function single_take(p_reservation text, p_tenant text, p_pool text, p_during tstzrange, p_allocation text, p_wants jsonb,
  p_lead text, p_hold boolean, p_spot boolean) returns jsonb language plpgsql as $$
declare
  node text;
  skip text[] := '{}';
  taken jsonb;
begin
  -- A window to come fits between others first, if that is soon found: nodes that nobody wants stay free for long ones.
  if not p_hold then
    node := node_window(p_pool, p_wants, p_lead, skip, p_during, false, true, 64);
    if node is not null then
      taken := node_take(p_reservation, p_tenant, p_pool, p_during, p_allocation, node, p_wants, null, false, p_spot, false);
    end if;
  end if;
  for attempt in 1..5 loop
    exit when taken is not null;
    node := node_walk(p_pool, p_wants, p_lead, skip);
    exit when node is null;
    taken := node_take(p_reservation, p_tenant, p_pool, p_during, p_allocation, node, p_wants, null, p_hold, p_spot, false);
    skip := skip || node;
  end loop;
  -- Locked is not full: before a refusal, wait for those who are booking and look again.
  for attempt in 1..16 loop
    exit when taken is not null;
    node := coalesce(node_candidate(p_pool, p_wants, p_lead, '{}'),
      node_window(p_pool, p_wants, p_lead, '{}', p_during, p_hold, p_hold, null));
    exit when node is null;
    perform 1 from node_capacity where node_id = node and p_wants ? class order by class for update;
    taken := node_take(p_reservation, p_tenant, p_pool, p_during, p_allocation, node, p_wants, null, p_hold, p_spot, false);
  end loop;
  return taken;
end $$;

-- The nodes of a gang: n that are whole and open for the window, all with one value of a label where that is asked for.
-- Of several values the one with the fewest nodes to spare; nodes that nobody booked at all come first. Null: too few.
create function gang_nodes(p_pool text, p_wants jsonb, p_lead text, p_nodes int, p_label text, p_during tstzrange, p_hold boolean)
returns text[] language sql stable as $$
  with whole as (
    select c.node_id, n.labels ->> p_label as value, c.free < c.total as shared
    from node_capacity c join nodes n on n.id = c.node_id
    where c.pool_id = p_pool and c.class = p_lead and c.schedulable and c.allocatable = c.total
      and (p_label is null or n.labels ? p_label)
      and (not p_hold or c.allocated = 0)
      and not exists (
        select 1 from jsonb_each_text(p_wants) w where not exists (
          select 1 from node_capacity o
          where o.node_id = c.node_id and o.class = w.key and o.allocatable >= w.value::int and (not p_hold or o.allocated = 0)))
      and (c.free = c.total and (select count(*) = 1 from jsonb_object_keys(p_wants)) or not exists (
        select 1 from devices d join device_bookings b on b.device_no = d.no and b.released_at is null and meets(b.during, p_during)
        where d.node_id = c.node_id and p_wants ? d.class))),
  groups as (
    select value from whole group by value having count(*) >= p_nodes order by count(*), value limit 1)
  select array_agg(node_id order by node_id) from (
    select w.node_id from whole w, groups g where w.value is not distinct from g.value
    order by w.shared <> not p_hold, w.node_id limit p_nodes) chosen
$$;

-- All the nodes of a gang, or none: null. Gangs of a pool follow each other, so that no two hold halves; single requests
-- go on beside them and wait for nobody.
create function gang_take(r reservations, p_allocations jsonb, p_wants jsonb, p_lead text, p_hold boolean) returns jsonb language plpgsql as $$
declare
  during constant tstzrange := tstzrange(r.starts_at, r.ends_at, '[)');
  nodes text[];
  wants jsonb;
  one jsonb;
  taken jsonb := '[]';
begin
  perform pg_advisory_xact_lock(hashtextextended('gang/' || r.pool_id, 0));
  nodes := gang_nodes(r.pool_id, p_wants, p_lead, (r.gang ->> 'nodes')::int, r.gang ->> 'sameLabel', during, p_hold);
  if nodes is null then
    return null;
  end if;
  perform 1 from node_capacity where node_id = any (nodes) and p_wants ? class order by node_id, class for update;
  for i in 1..cardinality(nodes) loop
    -- Whole: all that the node has of what was asked for.
    select jsonb_object_agg(class, total) into wants from node_capacity where node_id = nodes[i] and p_wants ? class;
    one := node_take(r.id, r.tenant_id, r.pool_id, during, p_allocations ->> (i - 1), nodes[i], wants, null, p_hold, r.spot, false);
    if one is null then
      raise exception 'node % of a gang was taken meanwhile', nodes[i] using errcode = '23P01', constraint = 'device_bookings_no_overlap';
    end if;
    taken := taken || one;
  end loop;
  return taken;
end $$;

-- A node in place of one that a scheduled gang lost: whole, as many devices, the same value of the gang's label.
create function gang_member(p_reservation text, p_allocation text, p_former text, p_wants jsonb) returns jsonb language plpgsql as $$
declare
  r reservations;
  span tstzrange;
  node text;
begin
  select * into r from reservations where id = p_reservation;
  span := tstzrange(r.starts_at, r.ends_at, '[)');
  perform pg_advisory_xact_lock(hashtextextended('gang/' || r.pool_id, 0));
  for node in
    select n.id from nodes n
    where n.pool_id = r.pool_id and n.schedulable and n.id <> p_former
      and (not r.gang ? 'sameLabel' or n.labels -> (r.gang ->> 'sameLabel')
        = (select f.labels -> (r.gang ->> 'sameLabel') from nodes f where f.id = p_former))
      and not exists (select 1 from allocations a where a.node_id = n.id and a.reservation_id = r.id)
      and not exists (
        select 1 from jsonb_each_text(p_wants) w where not exists (
          select 1 from node_capacity c
          where c.node_id = n.id and c.class = w.key and c.total = w.value::int and c.allocatable = c.total))
      and not exists (
        select 1 from devices d join device_bookings b on b.device_no = d.no and b.released_at is null and meets(b.during, span)
        where d.node_id = n.id and p_wants ? d.class)
    order by n.id limit 8
  loop
    perform 1 from node_capacity where node_id = node and p_wants ? class order by class for update;
    return node_take(r.id, r.tenant_id, r.pool_id, span, p_allocation, node, p_wants, null, false, r.spot, false);
  end loop;
  return null;
end $$;
