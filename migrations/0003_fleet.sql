-- The fleet: where machines stand, who may use them, what they are made of.

create table sites (
  id text primary key,
  tenant_id text not null,
  name text not null,
  kind text not null default 'shared',
  iam_region text,
  labels jsonb not null default '{}',
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  updated_at timestamptz not null default compute_now(),
  constraint sites_name_unique unique (tenant_id, name),
  constraint sites_kind check (kind in ('shared', 'dedicated', 'custom'))
);

create table pools (
  id text primary key,
  site_id text not null,
  tenant_id text not null,
  name text not null,
  class text not null,
  gpu_model text,
  sharing text not null default 'exclusive',
  placer text not null default 'inline',
  -- How long a spot reservation goes on after somebody who pays the full price was promised its devices.
  spot_notice_seconds int not null default 120,
  labels jsonb not null default '{}',
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  updated_at timestamptz not null default compute_now(),
  constraint pools_name_unique unique (tenant_id, name),
  constraint pools_site_exists foreign key (site_id) references sites (id),
  constraint pools_class check (class in ('metal-host', 'metal-dedicated', 'vps-host', 'provider')),
  constraint pools_sharing check (sharing in ('exclusive', 'mig', 'time-slice', 'mps')),
  constraint pools_spot_notice check (spot_notice_seconds between 0 and 3600),
  constraint pools_placer check (placer in ('inline', 'pool-lease'))
);
create index pools_site on pools (site_id);

-- Makes a pool visible to another tenant. quota: resource -> count; a resource that is missing grants zero.
create table pool_offers (
  id text primary key,
  pool_id text not null,
  tenant_id text not null,
  quota jsonb not null,
  priority int not null default 0,
  version bigint not null default 1,
  created_at timestamptz not null default compute_now(),
  updated_at timestamptz not null default compute_now(),
  constraint pool_offers_once unique (pool_id, tenant_id),
  constraint pool_offers_pool_exists foreign key (pool_id) references pools (id)
);
create index pool_offers_tenant on pool_offers (tenant_id);

-- What a tenant holds of one resource in one pool, and how much it may. The row is locked through the commit of every
-- admission, so it is always taken last. limit_count null: no cap (the pool's owner, unless quotas.set gave one).
create table quotas (
  tenant_id text not null,
  pool_id text not null,
  resource text not null,
  limit_count bigint,
  -- 'offer' follows the offer; 'set' was written by quotas.set and stands above it; 'owner' has no cap.
  source text not null,
  used bigint not null default 0,
  updated_at timestamptz not null default compute_now(),
  primary key (tenant_id, pool_id, resource),
  constraint quotas_used_not_negative check (used >= 0),
  constraint quotas_limit_not_negative check (limit_count >= 0),
  constraint quotas_source check (source in ('offer', 'set', 'owner')),
  constraint quotas_pool_exists foreign key (pool_id) references pools (id)
) with (fillfactor = 50);

create table join_tokens (
  id text primary key,
  tenant_id text not null,
  site_id text not null,
  pool_id text not null,
  secret_hash text not null,
  name text,
  max_uses int not null,
  uses int not null default 0,
  expires_at timestamptz not null,
  revoked_at timestamptz,
  created_by text not null,
  created_at timestamptz not null default compute_now(),
  constraint join_tokens_pool_exists foreign key (pool_id) references pools (id),
  constraint join_tokens_uses_within check (uses >= 0 and uses <= max_uses),
  constraint join_tokens_max_uses check (max_uses between 1 and 10000)
);
create index join_tokens_tenant on join_tokens (tenant_id, created_at, id);

create table nodes (
  id text primary key,
  tenant_id text not null,
  site_id text not null,
  pool_id text not null,
  name text not null,
  role text not null default 'node',
  -- Provision state; written by transition() alone.
  state text not null default 'adopting',
  state_version bigint not null default 1,
  state_changed_at timestamptz not null default compute_now(),
  state_reason text,
  hardware_key text,
  hardware_key_trusted boolean not null default false,
  cordoned boolean not null default false,
  cordon_reason text,
  maintenance boolean not null default false,
  -- Connectivity: what the gateways saw last.
  connectivity text not null default 'never',
  connectivity_at timestamptz not null default compute_now(),
  epoch bigint not null default 0,
  gateway_id text,
  journal_id text,
  -- Events of that journal are stored up to this number; a new journal begins at 0.
  journal_events bigint not null default 0,
  boot_id text,
  bcd_version text,
  observed_generation bigint not null default 0,
  observed_at timestamptz,
  -- Derived by node_refresh(): may new work land here, and if not why.
  schedulable boolean not null default false,
  unschedulable_reasons text[] not null default '{}',
  -- The machine is known to hold nothing any more (retired, wiped): its atoms are free without its word.
  fenced_at timestamptz,
  hardware jsonb not null default '{}',
  -- Driver errors that still count against its GPUs. Kept here, so that a daemon that forgot them heals nothing.
  gpu_faults jsonb not null default '[]',
  labels jsonb not null default '{}',
  version bigint not null default 1,
  joined_at timestamptz not null default compute_now(),
  created_at timestamptz not null default compute_now(),
  constraint nodes_pool_exists foreign key (pool_id) references pools (id),
  constraint nodes_site_exists foreign key (site_id) references sites (id),
  constraint nodes_name_unique unique (pool_id, name),
  constraint nodes_role check (role in ('node', 'site', 'ramdisk', 'node-tenant')),
  constraint nodes_connectivity check (connectivity in ('never', 'connected', 'unreachable'))
) with (fillfactor = 60);
create index nodes_pool on nodes (pool_id, id);
create index nodes_tenant on nodes (tenant_id, created_at, id);
create index nodes_gateway on nodes (gateway_id) where connectivity = 'connected';
create index nodes_hardware_key on nodes (hardware_key) where hardware_key_trusted;

-- What a join token admitted: the same key asking again inside the window gets the same admission.
create table join_admissions (
  token_id text not null,
  key_hash text not null,
  node_id text not null,
  source_ip text,
  at timestamptz not null default compute_now(),
  primary key (token_id, key_hash),
  constraint join_admissions_token_exists foreign key (token_id) references join_tokens (id),
  constraint join_admissions_node_exists foreign key (node_id) references nodes (id)
);

create table node_certificates (
  id text primary key,
  node_id text not null,
  serial text not null,
  key_hash text not null,
  role text not null,
  not_before timestamptz not null,
  not_after timestamptz not null,
  revoked_at timestamptz,
  issued_at timestamptz not null default compute_now(),
  constraint node_certificates_serial_unique unique (serial),
  constraint node_certificates_node_exists foreign key (node_id) references nodes (id)
);
create index node_certificates_node on node_certificates (node_id, issued_at);

-- Desired state, one row a node. The generation rises only when the canonical JSON changes.
create table node_specs (
  node_id text primary key,
  generation bigint not null,
  spec jsonb not null,
  canonical text not null,
  sha256 text not null,
  changed_at timestamptz not null default compute_now(),
  constraint node_specs_node_exists foreign key (node_id) references nodes (id),
  constraint node_specs_generation_positive check (generation > 0)
) with (fillfactor = 60);
create index node_specs_changed on node_specs (changed_at);

-- Inventory: the last known document by section, and the append-only trail of what changed.
create table node_sections (
  node_id text not null,
  section text not null,
  hash text not null,
  data jsonb not null,
  at timestamptz not null default compute_now(),
  primary key (node_id, section),
  constraint node_sections_node_exists foreign key (node_id) references nodes (id)
);
create table inventory_snapshots (
  seq bigint generated always as identity primary key,
  node_id text not null,
  section text not null,
  hash text not null,
  data jsonb not null,
  at timestamptz not null default compute_now()
);
create index inventory_snapshots_node on inventory_snapshots (node_id, seq);

-- A unit of hardware. `no` is its short name inside the database: GiST over bigint is three times as fast as over a
-- TypeID's text and five times as over uuid, and every booking pays for it.
create table devices (
  id text primary key,
  no bigint generated always as identity,
  node_id text not null,
  pool_id text not null,
  class text not null,
  stable_id text not null,
  slot int not null default 0,
  attributes jsonb not null default '{}',
  bookable boolean not null default true,
  -- unknown is not schedulable: health must be shown, not assumed.
  health text not null default 'unknown',
  health_reason text,
  present boolean not null default true,
  -- Who holds it: set at admission, cleared only when the node confirmed that it let go, or was fenced. Not indexed, so
  -- that booking updates stay heap-only; an allocation finds its devices through its bookings.
  allocation_id text,
  -- Live bookings of it that do not hold it yet: windows that have not begun.
  claims int not null default 0,
  created_at timestamptz not null default compute_now(),
  updated_at timestamptz not null default compute_now(),
  constraint devices_claims_not_negative check (claims >= 0),
  constraint devices_no_unique unique (no),
  constraint devices_stable_unique unique (node_id, class, stable_id),
  constraint devices_node_exists foreign key (node_id) references nodes (id),
  constraint devices_class check (class in ('gpu', 'gpu.mig', 'gpu.slot', 'nic.vf', 'disk', 'node')),
  constraint devices_health check (health in ('healthy', 'unhealthy', 'unknown'))
) with (fillfactor = 70);
create index devices_node on devices (node_id, class, slot, no);
create index devices_pool on devices (pool_id, class, id);

create table node_conditions (
  node_id text not null,
  type text not null,
  subject text not null default '',
  effect text not null default 'none',
  reason text not null,
  message text not null,
  since timestamptz not null default compute_now(),
  primary key (node_id, type, subject),
  constraint node_conditions_node_exists foreign key (node_id) references nodes (id),
  constraint node_conditions_effect check (effect in ('NoSchedule', 'none'))
);

-- Free capacity, maintained, never derived in a request: one row a node and class, found by an index walk.
-- Its row is also the node's lock for everybody who books there.
create table node_capacity (
  node_id text not null,
  class text not null,
  pool_id text not null,
  total int not null,
  allocatable int not null,
  allocated int not null,
  -- Allocatable, held by nobody and booked by nobody: what an index walk may give away at once, for any length of time.
  free int not null,
  -- Allocatable and held by nobody, but booked for a window to come: they may serve until then.
  claimed int not null default 0,
  schedulable boolean not null,
  primary key (node_id, class),
  constraint node_capacity_node_exists foreign key (node_id) references nodes (id),
  constraint node_capacity_free_within check (free >= 0 and claimed >= 0 and free + claimed <= total)
) with (fillfactor = 50);
create index node_capacity_walk on node_capacity (pool_id, class, free, node_id) where schedulable and free > 0;
create index node_capacity_claimed on node_capacity (pool_id, class, node_id) where schedulable and claimed > 0;
create index node_capacity_pool on node_capacity (pool_id, class, node_id);

-- The lock of everybody who changes what nodes can offer, taken first, for all the nodes at once. The advisory lock
-- stands for capacity rows that do not exist yet: without it, one who found none would lock them after the node, and
-- another before. Admissions lock capacity rows alone, and never a node.
create function node_lock(p_nodes text[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('node_capacity/' || id, 0)) from (
    select id from unnest(p_nodes) u (id) order by id) sorted;
  perform 1 from node_capacity where node_id = any (p_nodes) order by node_id, class for update;
end $$;

-- Recounts the summaries of one node from its devices. The caller holds its capacity rows.
create function capacity_recount(p_node text, p_pool text, p_schedulable boolean) returns void language plpgsql as $$
begin
  insert into node_capacity as c (node_id, class, pool_id, total, allocatable, allocated, free, claimed, schedulable)
  select p_node, d.class, p_pool,
      count(*) filter (where d.bookable),
      count(*) filter (where d.bookable and d.present and d.health = 'healthy'),
      count(*) filter (where d.allocation_id is not null),
      count(*) filter (where d.bookable and d.present and d.health = 'healthy' and d.allocation_id is null and d.claims = 0),
      count(*) filter (where d.bookable and d.present and d.health = 'healthy' and d.allocation_id is null and d.claims > 0),
      p_schedulable
    from devices d where d.node_id = p_node group by d.class
  on conflict (node_id, class) do update set pool_id = excluded.pool_id, total = excluded.total, allocatable = excluded.allocatable,
    allocated = excluded.allocated, free = excluded.free, claimed = excluded.claimed, schedulable = excluded.schedulable
  where (c.pool_id, c.total, c.allocatable, c.allocated, c.free, c.claimed, c.schedulable) is distinct from
    (excluded.pool_id, excluded.total, excluded.allocatable, excluded.allocated, excluded.free, excluded.claimed, excluded.schedulable);
  delete from node_capacity c where c.node_id = p_node and not exists (
    select 1 from devices d where d.node_id = p_node and d.class = c.class);
end $$;

-- Recounts one node from its rows and says whether it may take work. Called by whoever changed devices, conditions,
-- cordon, connectivity, state or generation.
create function node_refresh(p_node text) returns void language plpgsql as $$
declare
  n nodes;
  why text[];
begin
  perform node_lock(array[p_node]);
  select * into n from nodes where id = p_node for no key update;
  if not found then
    return;
  end if;
  select coalesce(array_agg(r order by o, r), '{}') into why from (
    select 1 as o, 'provision state is ' || n.state as r where n.state <> 'ready'
    union all select 2, 'cordoned' || coalesce(': ' || n.cordon_reason, '') where n.cordoned
    union all select 3, 'in maintenance' where n.maintenance
    union all select 4, case n.connectivity when 'never' then 'has never connected' else 'unreachable' end where n.connectivity <> 'connected'
    union all select 5, 'has not converged yet' where n.observed_generation = 0
    union all select 6, c.type || ': ' || c.message from node_conditions c where c.node_id = p_node and c.effect = 'NoSchedule' and c.subject = ''
  ) reasons;
  update nodes set schedulable = (why = '{}'), unschedulable_reasons = why
    where id = p_node and (schedulable, unschedulable_reasons) is distinct from ((why = '{}'), why);
  perform capacity_recount(p_node, n.pool_id, why = '{}');
end $$;
