-- Webhooks: who wants to hear what, and one row a delivery, written in the commit of its event.

create table webhooks (
  id text primary key,
  tenant_id text not null,
  url text not null,
  -- Exact event types, `reservation.*` for a family, `*` for all.
  event_types text[] not null,
  enabled boolean not null default true,
  disabled_reason text,
  -- [{secret, createdAt, expiresAt?}], newest first; at most two sign at a time.
  secrets jsonb not null,
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  updated_at timestamptz not null default compute_now()
);
create index webhooks_tenant on webhooks (tenant_id, created_at, id);

create table webhook_deliveries (
  id text primary key default new_id('dlv'),
  webhook_id text not null,
  tenant_id text not null,
  event_id text not null,
  -- pending, delivered, or dead after the last attempt; written by transition() alone.
  state text not null default 'pending',
  state_version bigint not null default 1,
  state_changed_at timestamptz not null default compute_now(),
  state_reason text,
  attempt int not null default 0,
  next_attempt_at timestamptz not null default compute_now(),
  -- A consumer that took the row; another may take it only after this instant.
  claimed_until timestamptz,
  response_status int,
  response_excerpt text,
  created_at timestamptz not null default compute_now(),
  constraint webhook_deliveries_once unique (webhook_id, event_id),
  constraint webhook_deliveries_webhook_exists foreign key (webhook_id) references webhooks (id) on delete cascade
) with (fillfactor = 70);
create index webhook_deliveries_due on webhook_deliveries (next_attempt_at) where state = 'pending';
create index webhook_deliveries_webhook on webhook_deliveries (webhook_id, created_at, id);

create function event_matches(patterns text[], type text) returns boolean language sql immutable as $$
  select patterns && array['*', type, split_part(type, '.', 1) || '.*']
$$;

-- Replaces 0001's: the deliveries of an event commit with it. The due index is their queue; a wake-up row shared by all
-- deliveries would make every admission of a tenant wait for the last one's commit.
create or replace function emit(p_type text, p_tenant text, p_kind text, p_id text, p_data jsonb, p_traceparent text default null)
returns void language plpgsql as $$
declare
  e text;
begin
  insert into events (type, tenant_id, subject_kind, subject_id, data, traceparent)
    values (p_type, p_tenant, p_kind, p_id, p_data, p_traceparent) returning id into e;
  insert into webhook_deliveries (webhook_id, tenant_id, event_id)
    select w.id, w.tenant_id, e from webhooks w
    where w.tenant_id = p_tenant and w.enabled and event_matches(w.event_types, p_type);
end $$;

-- Decided under which policies? A change of policy that commits at the same instant orders itself after this one; one
-- that committed before is seen, and the decision is made again.
create or replace function policy_fence(p_epoch bigint) returns void language plpgsql as $$
begin
  if (select epoch from iam.policy_epoch) is distinct from p_epoch then
    raise exception 'policies changed since the decision' using errcode = 'BC005';
  end if;
end $$;
