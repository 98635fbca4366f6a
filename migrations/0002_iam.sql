-- The embedded identity service: tenants, identities, credentials, policies, delegations, and everything a decision
-- needs in one call. Nothing outside plugins/iam reads these tables; others know iam.policy_epoch and nothing more.
create schema iam;

-- Policy epoch -------------------------------------------------------------------------------------------------------
-- Rises with every change that may alter a decision, once a transaction. A write that was allowed under an older epoch
-- does not commit (policy_fence).
create table iam.policy_epoch (
  only_row boolean primary key default true,
  epoch bigint not null default 1,
  xid xid8,
  constraint policy_epoch_one_row check (only_row)
) with (fillfactor = 10);
insert into iam.policy_epoch default values;

create function iam.bump_epoch() returns trigger language plpgsql as $$
begin
  update iam.policy_epoch set epoch = epoch + 1, xid = pg_current_xact_id()
    where xid is distinct from pg_current_xact_id();
  return null;
end $$;

-- Tenants ------------------------------------------------------------------------------------------------------------
create table iam.tenants (
  id text primary key,
  parent_id text references iam.tenants (id),
  type text not null,
  name text not null,
  slug text not null,
  status text not null default 'active',
  -- A ceiling for everybody in this tenant and below.
  boundary jsonb,
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  constraint tenants_type check (type in ('root', 'organization', 'project')),
  constraint tenants_status check (status in ('pending', 'active', 'suspended', 'deleted')),
  constraint tenants_root_has_no_parent check ((type = 'root') = (parent_id is null)),
  constraint tenants_slug_shape check (slug ~ '^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$'),
  constraint tenants_slug_unique unique (slug)
);
create unique index tenants_one_root on iam.tenants ((true)) where parent_id is null;
create index tenants_parent on iam.tenants (parent_id);

-- From the tenant up to the root, nearest first; empty for an unknown tenant.
create function iam.tenant_chain(p_tenant text)
returns table (id text, type text, status text, boundary jsonb, depth int) language sql stable as $$
  with recursive up as (
    select t.id, t.parent_id, t.type, t.status, t.boundary, 0 as depth from iam.tenants t where t.id = p_tenant
    union all
    select t.id, t.parent_id, t.type, t.status, t.boundary, up.depth + 1
    from up join iam.tenants t on t.id = up.parent_id where up.depth < 100)
  select up.id, up.type, up.status, up.boundary, up.depth from up order by up.depth
$$;

-- Identities ---------------------------------------------------------------------------------------------------------
create table iam.identities (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  kind text not null,
  name text not null,
  status text not null default 'active',
  -- Administrator of the platform: overrides every policy from a session with a second factor. Root tenant only.
  root_admin boolean not null default false,
  attributes jsonb not null default '{}',
  -- The person who answers for an agent.
  sponsor_id text references iam.identities (id),
  boundary jsonb,
  created_at timestamptz not null default compute_now(),
  constraint identities_kind check (kind in ('user', 'service', 'agent')),
  constraint identities_status check (status in ('active', 'suspended', 'deleted')),
  constraint identities_root_admin_is_user check (not root_admin or kind = 'user'),
  constraint identities_agent_has_sponsor check ((kind = 'agent') = (sponsor_id is not null)),
  constraint identities_name_unique unique (tenant_id, name)
);

-- Policies, roles, groups, bindings ----------------------------------------------------------------------------------
create table iam.policies (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  name text not null,
  document jsonb not null,
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  constraint policies_name_unique unique (tenant_id, name)
);

create table iam.roles (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  name text not null,
  document jsonb,
  -- Made by the service itself: neither changed, deleted nor inherited.
  protected boolean not null default false,
  -- The owner role of its tenant; who holds it is `principal.owner`.
  owner boolean not null default false,
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  constraint roles_name_unique unique (tenant_id, name)
);

create table iam.role_policies (
  role_id text not null references iam.roles (id) on delete cascade,
  policy_id text not null constraint role_policies_policy_in_use references iam.policies (id),
  primary key (role_id, policy_id)
);
create index role_policies_policy on iam.role_policies (policy_id);

create table iam.role_inherits (
  role_id text not null references iam.roles (id) on delete cascade,
  inherits_id text not null constraint role_inherits_role_in_use references iam.roles (id),
  primary key (role_id, inherits_id)
);
create index role_inherits_inherited on iam.role_inherits (inherits_id);

create table iam.groups (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  name text not null,
  created_at timestamptz not null default compute_now(),
  constraint groups_name_unique unique (tenant_id, name)
);

create table iam.memberships (
  group_id text not null references iam.groups (id) on delete cascade,
  identity_id text not null references iam.identities (id) on delete cascade,
  expires_at timestamptz,
  primary key (group_id, identity_id)
);
create index memberships_identity on iam.memberships (identity_id);

create table iam.bindings (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  role_id text not null constraint bindings_role_in_use references iam.roles (id),
  identity_id text references iam.identities (id),
  group_id text references iam.groups (id),
  starts_at timestamptz,
  expires_at timestamptz,
  created_at timestamptz not null default compute_now(),
  constraint bindings_one_subject check (num_nonnulls(identity_id, group_id) = 1),
  constraint bindings_unique unique nulls not distinct (role_id, identity_id, group_id)
);
create index bindings_identity on iam.bindings (identity_id) where identity_id is not null;
create index bindings_group on iam.bindings (group_id) where group_id is not null;
create index bindings_tenant on iam.bindings (tenant_id, id);

-- Delegations and confirmations --------------------------------------------------------------------------------------
create table iam.delegations (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  agent_id text not null references iam.identities (id),
  person_id text not null references iam.identities (id),
  status text not null default 'pending',
  reason text not null,
  policy jsonb not null,
  -- Action patterns that the person keeps for themselves until asked.
  confirm text[] not null default '{}',
  max_session_seconds int not null default 3600,
  expires_at timestamptz not null,
  created_at timestamptz not null default compute_now(),
  decided_at timestamptz,
  constraint delegations_status check (status in ('pending', 'active', 'denied', 'revoked')),
  constraint delegations_session_bound check (max_session_seconds between 60 and 3600)
);
create index delegations_agent on iam.delegations (agent_id, created_at);
create index delegations_person on iam.delegations (person_id, created_at);
create unique index delegations_one_live on iam.delegations (agent_id, person_id) where status = 'pending';

create table iam.confirmations (
  id text primary key,
  tenant_id text not null references iam.tenants (id),
  delegation_id text not null references iam.delegations (id),
  action text not null,
  resource text not null,
  reason text not null,
  status text not null default 'pending',
  valid_seconds int not null,
  -- Until when a decision is waited for; then until when the approval stands.
  expires_at timestamptz not null,
  requested_at timestamptz not null default compute_now(),
  decided_at timestamptz,
  constraint confirmations_status check (status in ('pending', 'approved', 'rejected')),
  constraint confirmations_validity check (valid_seconds between 30 and 3600)
);
create index confirmations_delegation on iam.confirmations (delegation_id, requested_at);
create unique index confirmations_one_pending on iam.confirmations (delegation_id, action, resource) where status = 'pending';

-- Credentials --------------------------------------------------------------------------------------------------------
-- Sessions, API keys and delegated sessions. Only the SHA-256 of a token is kept.
create table iam.credentials (
  id text primary key,
  token_hash text not null,
  kind text not null,
  tenant_id text not null references iam.tenants (id),
  -- Whom it acts as; for a delegated session the person.
  identity_id text not null references iam.identities (id),
  name text not null default '',
  -- Ceilings, each an intersection: what the issuer was bounded by, and what was asked for.
  boundaries jsonb not null default '[]',
  mfa_at timestamptz,
  delegation_id text references iam.delegations (id),
  -- The agent's own credential that a delegated session came from; it ends with it.
  source_id text references iam.credentials (id),
  created_at timestamptz not null default compute_now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  constraint credentials_token_unique unique (token_hash),
  constraint credentials_kind check (kind in ('user', 'api-key', 'delegated')),
  constraint credentials_delegated check ((kind = 'delegated') = (delegation_id is not null and source_id is not null)),
  constraint credentials_mfa_is_user check (mfa_at is null or kind = 'user')
);
create index credentials_identity on iam.credentials (identity_id, created_at);
create index credentials_delegation on iam.credentials (delegation_id) where delegation_id is not null;

-- Feature flags ------------------------------------------------------------------------------------------------------
create table iam.flags (
  key text primary key,
  enabled boolean not null default false,
  killed boolean not null default false,
  constraint flags_key_shape check (key ~ '^[a-z0-9]+(?:[-_.][a-z0-9]+)*$' and length(key) <= 64)
);
create table iam.flag_targets (
  key text not null references iam.flags (key) on delete cascade,
  tenant_id text not null references iam.tenants (id),
  enabled boolean not null,
  -- Silences what descendants set for themselves.
  locked boolean not null default false,
  primary key (key, tenant_id)
);

-- Kill switch, then a locked target of the highest ancestor, then the nearest target, then the default.
create function iam.features_on(p_tenant text) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(f.key order by f.key), '[]')
  from iam.flags f
  left join lateral (
    select t.enabled from iam.tenant_chain(p_tenant) c join iam.flag_targets t on t.tenant_id = c.id and t.key = f.key
    order by t.locked desc, case when t.locked then -c.depth else c.depth end
    limit 1) target on true
  where not f.killed and coalesce(target.enabled, f.enabled)
$$;

-- Usage ledger -------------------------------------------------------------------------------------------------------
create table iam.usage (
  id text primary key default new_id('use'),
  tenant_id text not null references iam.tenants (id),
  meter text not null,
  quantity numeric not null,
  occurred_at timestamptz not null,
  idempotency_key text not null,
  identity_id text,
  tags jsonb not null default '{}',
  recorded_at timestamptz not null default compute_now(),
  constraint usage_once unique (tenant_id, idempotency_key),
  constraint usage_meter_shape check (meter ~ '^[a-z][a-z0-9_.-]{0,63}$'),
  constraint usage_quantity check (quantity >= 0 and quantity <= 1e15)
);
create index usage_period on iam.usage (tenant_id, meter, occurred_at);

-- Audit --------------------------------------------------------------------------------------------------------------
-- Denials, root overrides and changes, a chain a tenant: every record carries the hash of the one before it.
create table iam.audit (
  tenant_id text not null,
  sequence bigint not null,
  record jsonb not null,
  previous_hash text not null,
  hash text not null,
  primary key (tenant_id, sequence)
);
create table iam.audit_heads (
  tenant_id text primary key,
  sequence bigint not null,
  hash text not null
) with (fillfactor = 50);

-- The same text as canonical JSON in TypeScript: keys by code point, no white space.
create function iam.canonical(p jsonb) returns text language plpgsql immutable as $$
begin
  case jsonb_typeof(p)
    when 'object' then
      return (select '{' || coalesce(string_agg(to_json(key)::text || ':' || iam.canonical(value), ',' order by key collate "C"), '') || '}'
        from jsonb_each(p));
    when 'array' then
      return (select '[' || coalesce(string_agg(iam.canonical(value), ',' order by n), '') || ']'
        from jsonb_array_elements(p) with ordinality as e (value, n));
    else return p::text;
  end case;
end $$;

-- p: {tenantId, action, actorId, resourceId, outcome, rootOverride?, metadata?, sessionContext?}. Locks the tenant's head.
create function iam.audit_append(p jsonb) returns void language plpgsql as $$
declare
  head iam.audit_heads;
  r jsonb;
  h text;
begin
  insert into iam.audit_heads values (p ->> 'tenantId', 0, repeat('0', 64)) on conflict do nothing;
  select * into head from iam.audit_heads where tenant_id = p ->> 'tenantId' for update;
  r := jsonb_strip_nulls(p) || jsonb_build_object(
    'id', new_id('aud'),
    'timestamp', floor(extract(epoch from compute_now()) * 1000)::bigint,
    'sequence', head.sequence + 1,
    'previousHash', head.hash);
  h := encode(sha256(convert_to(iam.canonical(r), 'UTF8')), 'hex');
  insert into iam.audit values (head.tenant_id, head.sequence + 1, r, head.hash, h);
  update iam.audit_heads set sequence = sequence + 1, hash = h where tenant_id = head.tenant_id;
end $$;

create function iam.audit_frozen() returns trigger language plpgsql as $$
begin
  raise exception 'audit records are never changed' using errcode = 'BC002';
end $$;
create trigger audit_frozen before update or delete on iam.audit for each row execute function iam.audit_frozen();

-- Epoch triggers -----------------------------------------------------------------------------------------------------
-- A new policy, identity or credential grants nothing by itself, so it does not count.
create trigger epoch after update of status, boundary, parent_id on iam.tenants
  for each row when (old.* is distinct from new.*) execute function iam.bump_epoch();
create trigger epoch after update on iam.identities
  for each row when (old.* is distinct from new.*) execute function iam.bump_epoch();
create trigger epoch after update on iam.policies
  for each row when (old.document is distinct from new.document) execute function iam.bump_epoch();
create trigger epoch after update on iam.roles
  for each row when (old.document is distinct from new.document) execute function iam.bump_epoch();
create trigger epoch after insert or delete on iam.role_policies for each row execute function iam.bump_epoch();
create trigger epoch after insert or delete on iam.role_inherits for each row execute function iam.bump_epoch();
create trigger epoch after insert or update or delete on iam.memberships for each row execute function iam.bump_epoch();
create trigger epoch after insert or update or delete on iam.bindings for each row execute function iam.bump_epoch();
create trigger epoch after update of status, policy, confirm, expires_at on iam.delegations
  for each row when (old.* is distinct from new.*) execute function iam.bump_epoch();
create trigger epoch after update of status on iam.confirmations
  for each row when (old.status is distinct from new.status) execute function iam.bump_epoch();
create trigger epoch after update of revoked_at, expires_at, boundaries, mfa_at on iam.credentials
  for each row when (old.* is distinct from new.*) execute function iam.bump_epoch();
create trigger epoch after insert or update or delete on iam.flags for each row execute function iam.bump_epoch();
create trigger epoch after insert or update or delete on iam.flag_targets for each row execute function iam.bump_epoch();

-- Snapshot -----------------------------------------------------------------------------------------------------------
-- Epoch milliseconds, rounded down like `now` below, so that what ended is never taken for live. Starts round up.
create function iam.ms(p timestamptz) returns bigint language sql immutable parallel safe as $$
  select floor(extract(epoch from p) * 1000)::bigint
$$;

-- Every way in which the identity was granted something in the tenant and that has not ended: one element a binding,
-- with the documents of its role and of all roles that it inherits.
create function iam.grant_paths(p_tenant text, p_identity text) returns jsonb language sql stable as $$
  with recursive held as (
    select b.id, b.role_id, b.starts_at, b.expires_at, null::text as group_id
    from iam.bindings b
    where b.identity_id = p_identity and b.tenant_id = p_tenant
    union all
    select b.id, b.role_id, b.starts_at, least(b.expires_at, m.expires_at), m.group_id
    from iam.memberships m join iam.bindings b on b.group_id = m.group_id
    where m.identity_id = p_identity and b.tenant_id = p_tenant
  ), live as (
    select * from held where expires_at is null or expires_at > compute_now()
  ), reach (binding_id, role_id) as (
    select id, role_id from live
    union
    select reach.binding_id, i.inherits_id from reach join iam.role_inherits i on i.role_id = reach.role_id
  ), documents as (
    select reach.binding_id, r.id as from_id, r.document from reach join iam.roles r on r.id = reach.role_id
    where r.document is not null
    union
    select reach.binding_id, p.id, p.document from reach
    join iam.role_policies rp on rp.role_id = reach.role_id join iam.policies p on p.id = rp.policy_id
  )
  select coalesce(jsonb_agg(jsonb_build_object(
      'roleId', live.role_id,
      'owner', r.owner,
      'startsAt', iam.ms(live.starts_at + interval '999 microseconds'),
      'expiresAt', iam.ms(live.expires_at),
      'grants', (select coalesce(jsonb_agg(d.document order by d.from_id), '[]') from documents d where d.binding_id = live.id)
    ) order by live.id), '[]')
  from live join iam.roles r on r.id = live.role_id
$$;

create function iam.identity_facts(p_id text) returns jsonb language sql stable as $$
  select jsonb_build_object('id', i.id, 'tenantId', i.tenant_id, 'kind', i.kind, 'status', i.status,
    'rootAdmin', i.root_admin, 'attributes', i.attributes, 'boundary', i.boundary,
    'sponsorId', i.sponsor_id, 'sponsorStatus', s.status)
  from iam.identities i left join iam.identities s on s.id = i.sponsor_id where i.id = p_id
$$;

-- All that a decision for this credential needs, as of one instant; null for an unknown token. Whether the credential
-- still stands is judged by the reader, which keeps this for up to two seconds.
create function iam.snapshot(p_token_hash text) returns jsonb language plpgsql stable as $$
declare
  c iam.credentials;
  d iam.delegations;
  source_ends timestamptz;
  paths jsonb;
begin
  select * into c from iam.credentials where token_hash = p_token_hash;
  if c.id is null then
    return null;
  end if;
  if c.delegation_id is not null then
    select * into d from iam.delegations where id = c.delegation_id;
    select coalesce(s.revoked_at, s.expires_at) into source_ends from iam.credentials s where s.id = c.source_id;
  end if;
  paths := iam.grant_paths(c.tenant_id, c.identity_id);
  -- A snapshot is read with every request and kept in memory. Who was granted more than this is granted nothing.
  if octet_length(paths::text) > 1024 * 1024 then
    raise exception 'the policies of this identity are too large together; bind fewer or smaller roles' using errcode = 'BC006';
  end if;
  return jsonb_build_object(
    'epoch', (select epoch from iam.policy_epoch),
    'now', iam.ms(compute_now()),
    'session', jsonb_build_object('id', c.id, 'kind', c.kind, 'tenantId', c.tenant_id, 'name', c.name,
      'boundaries', c.boundaries, 'issuedAt', iam.ms(c.created_at), 'mfaAt', iam.ms(c.mfa_at),
      'endsAt', iam.ms(least(c.expires_at, c.revoked_at, source_ends)), 'expiresAt', iam.ms(c.expires_at)),
    'identity', iam.identity_facts(c.identity_id),
    'chain', (select jsonb_agg(jsonb_build_object('id', t.id, 'type', t.type, 'status', t.status, 'boundary', t.boundary)
      order by t.depth) from iam.tenant_chain(c.tenant_id) t),
    'groups', (select coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'expiresAt', iam.ms(m.expires_at)) order by g.id), '[]')
      from iam.memberships m join iam.groups g on g.id = m.group_id
      where m.identity_id = c.identity_id and g.tenant_id = c.tenant_id),
    'paths', paths,
    'delegation', case when d.id is not null then jsonb_build_object('id', d.id, 'status', d.status,
      'expiresAt', iam.ms(d.expires_at), 'policy', d.policy, 'confirm', to_jsonb(d.confirm),
      'agent', iam.identity_facts(d.agent_id),
      'approvals', (select coalesce(jsonb_agg(jsonb_build_object('key', a.action || '|' || a.resource, 'until', iam.ms(a.expires_at))), '[]')
        from iam.confirmations a
        where a.delegation_id = d.id and a.status = 'approved' and a.expires_at > compute_now())) end,
    'features', iam.features_on(c.tenant_id));
end $$;
