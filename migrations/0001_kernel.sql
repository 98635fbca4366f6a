-- The kernel: the few rules that every change in this database obeys, each written once.
-- Both ways in use them: mutate() from TypeScript and the functions that book.
create extension if not exists btree_gist;

-- Time ---------------------------------------------------------------------------------------------------------------
-- The control plane's one clock. STABLE and a single expression, so the planner inlines it and production pays nothing.
-- Tests and the simulator replace the body with a reader of a one-row clock table.
create function compute_now() returns timestamptz language sql stable parallel safe as $$ select now() $$;

-- How an instant is shown: RFC 3339 in UTC with microseconds, everywhere the same.
create function instant(at timestamptz) returns text language sql stable parallel safe as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- Ids ----------------------------------------------------------------------------------------------------------------
-- The TypeID text of a UUID: prefix, underscore, 26 characters of Crockford base 32, five bits each, the first three.
-- Unrolled, since every event and audit record needs one: a loop over a bit string took four times as long.
create function typeid_of(prefix text, id uuid) returns text language plpgsql immutable parallel safe as $$
declare
  hex constant text := replace(id::text, '-', '');
  hi constant bigint := ('x' || left(hex, 16))::bit(64)::bigint;
  lo constant bigint := ('x' || right(hex, 16))::bit(64)::bigint;
  a constant text := '0123456789abcdefghjkmnpqrstvwxyz';
begin
  return prefix || '_' ||
    substr(a, ((hi >> 61) & 7)::int + 1, 1) || substr(a, ((hi >> 56) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 51) & 31)::int + 1, 1) || substr(a, ((hi >> 46) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 41) & 31)::int + 1, 1) || substr(a, ((hi >> 36) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 31) & 31)::int + 1, 1) || substr(a, ((hi >> 26) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 21) & 31)::int + 1, 1) || substr(a, ((hi >> 16) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 11) & 31)::int + 1, 1) || substr(a, ((hi >> 6) & 31)::int + 1, 1) ||
    substr(a, ((hi >> 1) & 31)::int + 1, 1) || substr(a, (((hi & 1) << 4) | ((lo >> 60) & 15))::int + 1, 1) ||
    substr(a, ((lo >> 55) & 31)::int + 1, 1) || substr(a, ((lo >> 50) & 31)::int + 1, 1) ||
    substr(a, ((lo >> 45) & 31)::int + 1, 1) || substr(a, ((lo >> 40) & 31)::int + 1, 1) ||
    substr(a, ((lo >> 35) & 31)::int + 1, 1) || substr(a, ((lo >> 30) & 31)::int + 1, 1) ||
    substr(a, ((lo >> 25) & 31)::int + 1, 1) || substr(a, ((lo >> 20) & 31)::int + 1, 1) ||
    substr(a, ((lo >> 15) & 31)::int + 1, 1) || substr(a, ((lo >> 10) & 31)::int + 1, 1) ||
    substr(a, ((lo >> 5) & 31)::int + 1, 1) || substr(a, (lo & 31)::int + 1, 1);
end $$;
-- A fresh id. The simulator replaces it with a seeded sequence.
create function new_id(prefix text) returns text language sql volatile as $$ select typeid_of(prefix, uuidv7()) $$;

-- Events (the outbox) ------------------------------------------------------------------------------------------------
-- An event exists if and only if its change committed. Readers go by (xid, seq) below the oldest running transaction
-- (see event_page), so that a row that commits late is never skipped.
create table events (
  seq bigint generated always as identity,
  xid xid8 not null default pg_current_xact_id(),
  id text not null default new_id('evt'),
  type text not null,
  tenant_id text not null,
  subject_kind text not null,
  subject_id text not null,
  data jsonb not null,
  traceparent text,
  at timestamptz not null default compute_now(),
  constraint events_pk primary key (xid, seq),
  constraint events_id_unique unique (id)
);
create index events_tenant on events (tenant_id, xid, seq);
create index events_subject on events (subject_id, seq);

create function event_page(after_xid xid8, after_seq bigint, max_rows int)
returns setof events language sql stable as $$
  select * from events
  where (xid, seq) > (after_xid, after_seq) and xid < pg_snapshot_xmin(pg_current_snapshot())
  order by xid, seq limit max_rows
$$;

-- Work queue ---------------------------------------------------------------------------------------------------------
-- One row a (kind, key). Waking a queued key bumps its generation; finishing deletes only the generation that was seen,
-- so a wake-up during the run is never lost.
create table work_queue (
  kind text not null,
  key text not null,
  shard int not null,
  generation bigint not null default 1,
  not_before timestamptz not null default compute_now(),
  attempts int not null default 0,
  reason text,
  last_error text,
  created_at timestamptz not null default compute_now(),
  primary key (kind, key)
) with (fillfactor = 70);
create index work_queue_due on work_queue (shard, not_before);

create function shard_of(kind text, key text) returns int language sql immutable parallel safe as $$
  select (hashtextextended(kind || '/' || key, 0) & 15)::int
$$;

create function wake(p_kind text, p_key text, p_not_before timestamptz default null) returns void language sql as $$
  insert into work_queue as w (kind, key, shard, not_before)
  values (p_kind, p_key, shard_of(p_kind, p_key), coalesce(p_not_before, compute_now()))
  on conflict (kind, key) do update set
    generation = w.generation + 1,
    not_before = least(w.not_before, excluded.not_before),
    attempts = 0
$$;

-- Audit --------------------------------------------------------------------------------------------------------------
-- Every allowed change with the admission context it was allowed under. Asynchronous work acts on this record.
create table audit_events (
  seq bigint generated always as identity primary key,
  id text not null default new_id('aud'),
  at timestamptz not null default compute_now(),
  tenant_id text not null,
  action text not null,
  resource_type text not null,
  resource_id text not null,
  outcome text not null,
  context jsonb not null,
  data jsonb not null default '{}',
  constraint audit_events_id_unique unique (id),
  constraint audit_events_outcome check (outcome in ('allow', 'deny', 'system'))
);
create index audit_events_tenant on audit_events (tenant_id, seq);

create function audit(p_tenant text, p_action text, p_type text, p_id text, p_outcome text, p_context jsonb, p_data jsonb default '{}')
returns void language sql as $$
  insert into audit_events (tenant_id, action, resource_type, resource_id, outcome, context, data)
  values (p_tenant, p_action, p_type, p_id, p_outcome, p_context, p_data)
$$;

-- Authz projection ---------------------------------------------------------------------------------------------------
-- What IAM may decide on, written with the change itself.
create table authz_resources (
  type text not null,
  id text not null,
  tenant_id text not null,
  parent_type text,
  parent_id text,
  owner_id text,
  attributes jsonb not null default '{}',
  primary key (id, type)
) with (fillfactor = 80);
create index authz_resources_tenant on authz_resources (tenant_id, type);

create function project(p_type text, p_id text, p_tenant text, p_parent_type text, p_parent_id text, p_owner text, p_attributes jsonb)
returns void language sql as $$
  insert into authz_resources values (p_type, p_id, p_tenant, p_parent_type, p_parent_id, p_owner, p_attributes)
  on conflict (id, type) do update set tenant_id = excluded.tenant_id, parent_type = excluded.parent_type,
    parent_id = excluded.parent_id, owner_id = excluded.owner_id, attributes = excluded.attributes
$$;

create function unproject(p_type text, p_id text) returns void language sql as $$
  delete from authz_resources where id = p_id and type = p_type
$$;

-- Idempotency --------------------------------------------------------------------------------------------------------
-- The stored answer of a call, written in the transaction that had the effect.
create table idempotency_keys (
  tenant_id text not null,
  identity_id text not null,
  operation text not null,
  key text not null,
  fingerprint text not null,
  status int not null,
  response jsonb not null,
  created_at timestamptz not null default compute_now(),
  primary key (tenant_id, identity_id, operation, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

-- Leases -------------------------------------------------------------------------------------------------------------
-- The row that fences. Every takeover raises the epoch; a write under a lease checks the epoch in its own transaction.
create table leases (
  name text primary key,
  holder text not null,
  epoch bigint not null,
  expires_at timestamptz not null,
  acquired_at timestamptz not null default compute_now(),
  constraint leases_epoch_positive check (epoch > 0)
) with (fillfactor = 50);

-- Grants the lease when it is free, expired or already held by the same holder (a new epoch only when it changes hands
-- or had expired). Returns no row when somebody else holds it.
create function lease_acquire(p_name text, p_holder text, p_seconds int)
returns table (epoch bigint, expires_at timestamptz) language plpgsql as $$
begin
  return query
  insert into leases as l (name, holder, epoch, expires_at)
  values (p_name, p_holder, 1, compute_now() + make_interval(secs => p_seconds))
  on conflict (name) do update set
    epoch = case when l.holder = excluded.holder and l.expires_at > compute_now() then l.epoch else l.epoch + 1 end,
    acquired_at = case when l.holder = excluded.holder and l.expires_at > compute_now() then l.acquired_at else compute_now() end,
    holder = excluded.holder,
    expires_at = excluded.expires_at
  where l.holder = excluded.holder or l.expires_at <= compute_now()
  returning l.epoch, l.expires_at;
end $$;

create function lease_release(p_name text, p_holder text, p_epoch bigint) returns boolean language sql as $$
  with gone as (
    update leases set expires_at = compute_now()
    where name = p_name and holder = p_holder and epoch = p_epoch returning 1)
  select exists (select 1 from gone)
$$;

-- Refuses the transaction unless the lease still stands under this epoch. The share lock makes a takeover wait for the
-- commit, so a stalled owner cannot commit after it.
create function lease_fence(p_name text, p_epoch bigint) returns void language plpgsql as $$
begin
  perform 1 from leases where name = p_name and epoch = p_epoch for share;
  if not found then
    raise exception 'lease % is not held under epoch %', p_name, p_epoch using errcode = 'BC001', constraint = 'leases_epoch';
  end if;
end $$;

-- State machines -----------------------------------------------------------------------------------------------------
-- Rows come from the TypeScript state tables at migration time (db/state-sync.ts); the trigger refuses every other
-- move, and every writer but transition().
create table state_moves (
  machine text not null,
  event text not null,
  from_state text not null,
  to_state text not null,
  primary key (machine, event, from_state)
);

create table state_history (
  seq bigint generated always as identity primary key,
  machine text not null,
  subject_id text not null,
  event text not null,
  from_state text not null,
  to_state text not null,
  version bigint not null,
  actor text not null,
  reason text,
  at timestamptz not null default compute_now()
);
create index state_history_subject on state_history (subject_id, seq);

create function state_guard() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.state <> tg_argv[1] then
      raise exception '% starts in %, not %', tg_argv[0], tg_argv[1], new.state using errcode = 'BC002';
    end if;
    return new;
  end if;
  if new.state is distinct from old.state and
     current_setting('bc.transition', true) is distinct from tg_argv[0] || ':' || new.id || ':' || new.state then
    raise exception 'state of % % may only be written by transition()', tg_argv[0], new.id using errcode = 'BC002';
  end if;
  return new;
end $$;

-- The one writer of a state column is transition_<machine>(id, event, actor, reason, version), generated for each state
-- table by db/state-sync.ts: compare-and-set on the state (and on the version when given), history row included.
-- A move that is not legal raises BC002 with DETAIL = the state found; BC003 no such row; BC004 another version.

-- Events are emitted through one function; 0005 extends it with the webhook deliveries of the same commit.
create function emit(p_type text, p_tenant text, p_kind text, p_id text, p_data jsonb, p_traceparent text default null)
returns void language sql as $$
  insert into events (type, tenant_id, subject_kind, subject_id, data, traceparent)
  values (p_type, p_tenant, p_kind, p_id, p_data, p_traceparent)
$$;

-- The tail of every mutate(): all that goes with a change, in one round trip, in the same transaction.
-- p = { policyEpoch?, events: [{type,tenantId,kind,id,data,traceparent}], wakes: [{kind,key,notBefore}],
--       projections: [{type,id,tenantId,parentType,parentId,ownerId,attributes} | {type,id,gone:true}],
--       audits: [{tenantId,action,type,id,outcome,context,data}] }
create function kernel_flush(p jsonb) returns void language plpgsql as $$
declare
  x jsonb;
begin
  if p ? 'policyEpoch' then
    perform policy_fence((p ->> 'policyEpoch')::bigint);
  end if;
  for x in select * from jsonb_array_elements(p -> 'events') loop
    perform emit(x ->> 'type', x ->> 'tenantId', x ->> 'kind', x ->> 'id', x -> 'data', x ->> 'traceparent');
  end loop;
  -- Sorted, so that two changes that wake the same keys never wait for each other crosswise.
  for x in select value from jsonb_array_elements(p -> 'wakes') order by value ->> 'kind', value ->> 'key' loop
    perform wake(x ->> 'kind', x ->> 'key', (x ->> 'notBefore')::timestamptz);
  end loop;
  for x in select * from jsonb_array_elements(p -> 'projections') loop
    if (x ->> 'gone')::boolean then
      perform unproject(x ->> 'type', x ->> 'id');
    else
      perform project(x ->> 'type', x ->> 'id', x ->> 'tenantId', x ->> 'parentType', x ->> 'parentId', x ->> 'ownerId',
        coalesce(x -> 'attributes', '{}'));
    end if;
  end loop;
  for x in select * from jsonb_array_elements(p -> 'audits') loop
    perform audit(x ->> 'tenantId', x ->> 'action', x ->> 'type', x ->> 'id', x ->> 'outcome', x -> 'context', coalesce(x -> 'data', '{}'));
  end loop;
end $$;

-- A decision made under older policies may not commit. 0002 gives it the real body, over iam.policy_epoch.
create function policy_fence(p_epoch bigint) returns void language plpgsql as $$
begin
  raise exception 'policy epochs need the embedded IAM schema' using errcode = 'BC005';
end $$;
