-- The clock under watch: a clock that jumps must not end, delete or bill anything in one step, and one that comes back
-- must leave nothing behind that waits for an instant far away. docs/decisions/0011-clock-jumps.md says why it is so.

create table clock_watch (
  only_row boolean primary key default true,
  -- The last reading that deadlines may go by; null until the first look.
  trusted_at timestamptz,
  -- The last reading of all.
  seen_at timestamptz,
  -- The reading with which the clock came where it stands, while that is away from what is trusted.
  away_since timestamptz,
  -- The clock went back: what was written while it ran ahead is brought back once more at this instant.
  recall_at timestamptz,
  -- Settings of the deployment, as the last look gave them.
  jump_seconds int not null default 300,
  settle_seconds int not null default 300,
  constraint clock_watch_one_row check (only_row),
  constraint clock_watch_settings check (jump_seconds >= 60 and settle_seconds >= 0)
);
insert into clock_watch default values;

-- The time that deadlines are judged by: compute_now(), as long as it goes steadily. After a jump forward it stands
-- still until the clock came back or settled where it is; back it follows at once, since that ends nothing early.
create function steady_now() returns timestamptz language sql stable as $$
  select case when compute_now() > trusted_at + make_interval(secs => jump_seconds) then trusted_at else compute_now() end
  from clock_watch
$$;

-- Until when a clock that stands away must go steadily to be believed: a twentieth of the jump, a day at most. Three
-- hours of outage cost nine minutes; a year's jump leaves an operator a day.
create function clock_settles_at(w clock_watch) returns timestamptz language sql stable as $$
  select w.away_since + make_interval(secs => greatest(w.settle_seconds,
    least(86400, abs(extract(epoch from w.away_since - w.trusted_at)) / 20)))
$$;

-- The clock went back by much: what it wrote of the future while it ran ahead is brought back to the present. Rows say
-- so themselves: they were made at an instant that has not come, or wait longer than anything may. What is looked at too
-- early is looked at in vain; what is looked at too late would be dead until then.
create function clock_recall(t timestamptz, near interval) returns void language plpgsql as $$
begin
  -- Spread over a minute, the same minute for the same key.
  update work_queue set not_before = t + make_interval(secs => abs(hashtext(kind || key) % 60)) where not_before > t + near;
  -- No lease is longer than five minutes.
  update leases set expires_at = t + interval '1 minute' where expires_at > t + interval '5 minutes';
  update webhook_deliveries set claimed_until = null,
      next_attempt_at = t + make_interval(secs => abs(hashtext(id) % 60))
    where state = 'pending' and (next_attempt_at > t + near or claimed_until > t + near);
  -- A fence is about what was there before it, and would fence whatever comes within the jump.
  update nodes set fenced_at = t where fenced_at > t + near;
  -- Reservations that were made ahead begin now, for as long as they were made for. Leases last from now at most.
  update device_bookings b set during = tstzrange(t, t + (r.ends_at - r.starts_at), '[)')
    from allocations a join reservations r on r.id = a.reservation_id
    where a.released_at is null and b.allocation_id = a.id and b.released_at is null and r.starts_at > t + near
      and r.state in ('booked', 'active');
  update device_bookings b set during = tstzrange(t, null, '[)')
    from allocations a where a.released_at is null and b.allocation_id = a.id and b.released_at is null
      and lower(b.during) > t + near;
  update reservations set starts_at = t, ends_at = t + (ends_at - starts_at) where starts_at > t + near;
  update reservations set created_at = t where created_at > t + near;
  update reservations set activated_at = t where activated_at > t + near and state in ('active', 'releasing');
  update reservations set lease_expires_at = t + make_interval(secs => lease_seconds)
    where state in ('booked', 'active') and lease_expires_at > t + make_interval(secs => lease_seconds);
  update allocations set created_at = least(created_at, t), active_at = least(active_at, t)
    where released_at is null and (created_at > t + near or active_at > t + near);
  update join_tokens set expires_at = t + (expires_at - created_at), created_at = t where created_at > t + near;
  update iam.credentials set expires_at = t + (expires_at - created_at), created_at = t where created_at > t + near;
  update iam.credentials set mfa_at = t where mfa_at > t + near;
  update iam.confirmations set expires_at = t + (expires_at - requested_at), requested_at = t where requested_at > t + near;
  update iam.confirmations set expires_at = t + make_interval(secs => valid_seconds), decided_at = t where decided_at > t + near;
  update iam.delegations set expires_at = t + (expires_at - created_at), created_at = t where created_at > t + near;
end $$;

-- One look at the clock, by whoever gives a shard its turn. Answers {kind, trustedAt, awaySince?, jumpSeconds?, settlesAt?};
-- kind: `steady`; `jumped` (it stands somewhere else than expected, now); `away` (it still does); `returned` or `accepted`
-- (deadlines go on, now). Jumps and their ends are told to p_tenant, the platform's own, as events.
create function clock_look(p_tenant text, p_jump_seconds int, p_settle_seconds int) returns jsonb language plpgsql as $$
declare
  t constant timestamptz := compute_now();
  near constant interval := make_interval(secs => p_jump_seconds);
  w clock_watch;
  back boolean;
  kind text;
  answer jsonb;
begin
  select * into w from clock_watch;
  if w.away_since is null and w.recall_at is null and t between w.seen_at and w.seen_at + interval '10 seconds'
    and (w.jump_seconds, w.settle_seconds) = (p_jump_seconds, p_settle_seconds) then
    return jsonb_build_object('kind', 'steady', 'trustedAt', instant(w.trusted_at));
  end if;
  select * into w from clock_watch for update;
  w.jump_seconds := p_jump_seconds;
  w.settle_seconds := p_settle_seconds;
  back := t < w.seen_at - near;
  if w.trusted_at is null or t between w.trusted_at - near and w.trusted_at + near then
    kind := case when w.away_since is null then 'steady' else 'returned' end;
  elsif w.away_since is null or t not between w.seen_at - near and w.seen_at + near then
    kind := 'jumped';
    w.away_since := t;
  else
    kind := case when t >= clock_settles_at(w) then 'accepted' else 'away' end;
  end if;
  answer := jsonb_strip_nulls(jsonb_build_object('kind', kind, 'trustedAt', instant(w.trusted_at), 'awaySince', instant(w.away_since),
    'jumpSeconds', round(extract(epoch from w.away_since - w.trusted_at)), 'settlesAt', instant(clock_settles_at(w))));
  if kind in ('steady', 'returned', 'accepted') then
    w.trusted_at := t;
    w.away_since := null;
  end if;
  -- Twice: whoever was at work when it went back may still write what it began to.
  if back or t >= w.recall_at then
    perform clock_recall(t, near);
    w.recall_at := case when back then t + interval '1 minute' end;
  end if;
  w.seen_at := t;
  update clock_watch set trusted_at = w.trusted_at, seen_at = w.seen_at, away_since = w.away_since, recall_at = w.recall_at,
    jump_seconds = w.jump_seconds, settle_seconds = w.settle_seconds;
  if kind in ('jumped', 'returned', 'accepted') then
    perform emit('clock.' || kind, p_tenant, 'clock', 'clock', answer - 'kind');
  end if;
  return answer;
end $$;

-- An operator says that the clock is right where it stands: deadlines go on at once.
create function clock_acknowledge() returns void language sql as $$
  update clock_watch set trusted_at = compute_now(), seen_at = compute_now(), away_since = null
$$;
