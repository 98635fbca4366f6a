/**
 * Constraint -> what the caller is told. Every named CHECK, UNIQUE, FOREIGN KEY and EXCLUDE of the schema stands here;
 * `npm run check` compares the table with the catalog of a migrated database and fails on a missing or a stale row.
 * `bug` marks a rule that no input may reach: breaking it is INTERNAL, and an alarm.
 */
import type { ErrorCode } from '#core/kernel/errors.ts';

export type ConstraintMeaning =
  | { readonly code: Exclude<ErrorCode, 'INVALID_REQUEST'>; readonly detail: string }
  | { readonly code: 'INVALID_REQUEST'; readonly field: string; readonly detail: string }
  | { readonly bug: string };

const invalid = (field: string, detail: string): ConstraintMeaning => ({ code: 'INVALID_REQUEST', field, detail });
const conflict = (detail: string): ConstraintMeaning => ({ code: 'CONFLICT', detail });
const missing = (detail: string): ConstraintMeaning => ({ code: 'NOT_FOUND', detail });
const bug = (why: string): ConstraintMeaning => ({ bug: why });

export const CONSTRAINTS: Readonly<Record<string, ConstraintMeaning>> = {
  // Kernel
  events_id_unique: bug('two events drew the same id'),
  audit_events_id_unique: bug('two audit records drew the same id'),
  audit_events_outcome: bug('an audit outcome outside the list'),
  clock_watch_one_row: bug('a second watch over the clock'),
  clock_watch_settings: bug('settings of the clock watch out of bounds'),
  leases_epoch_positive: bug('an epoch below 1'),
  leases_epoch: { code: 'STALE_EPOCH', detail: 'the lease has a newer owner' },
  nodes_epoch: { code: 'STALE_EPOCH', detail: 'the node has a newer session' },
  // Fleet
  sites_name_unique: conflict('a site of this name exists'),
  sites_kind: invalid('kind', 'must be shared, dedicated or custom'),
  pools_name_unique: conflict('a pool of this name exists'),
  pools_site_exists: conflict('the site still has pools'),
  pools_class: invalid('class', 'must be metal-host, metal-dedicated, vps-host or provider'),
  pools_sharing: invalid('sharing', 'must be exclusive, mig, time-slice or mps'),
  pools_placer: invalid('placer', 'must be inline or pool-lease'),
  pools_spot_notice: invalid('spotNoticeSeconds', 'must be 0 to 3600 seconds'),
  pool_offers_once: conflict('the pool is offered to this tenant already; update that offer'),
  pool_offers_pool_exists: conflict('the pool is still offered'),
  quotas_used_not_negative: bug('more was refunded than charged'),
  quotas_limit_not_negative: invalid('limit', 'must not be negative'),
  quotas_source: bug('a quota source outside the list'),
  quotas_pool_exists: conflict('the pool still has quotas in use'),
  join_tokens_pool_exists: conflict('the pool still has join tokens'),
  join_tokens_uses_within: { code: 'JOIN_REFUSED', detail: 'the join token has no use left' },
  join_tokens_max_uses: invalid('maxUses', 'must be between 1 and 10000'),
  nodes_pool_exists: conflict('the pool still has nodes'),
  nodes_site_exists: conflict('the site still has nodes'),
  nodes_name_unique: conflict('a node of this name exists in the pool'),
  nodes_role: bug('a node role outside the list'),
  nodes_connectivity: bug('a connectivity outside the list'),
  join_admissions_token_exists: bug('an admission under a token that is not there'),
  join_admissions_node_exists: bug('an admission of a node that is not there'),
  node_certificates_serial_unique: bug('two certificates drew the same serial'),
  node_certificates_node_exists: bug('a certificate for a node that is not there'),
  node_specs_node_exists: bug('a spec for a node that is not there'),
  node_specs_generation_positive: bug('a generation below 1'),
  node_sections_node_exists: bug('inventory of a node that is not there'),
  devices_no_unique: bug('two devices drew the same number'),
  devices_stable_unique: bug('one device was written twice'),
  devices_node_exists: bug('a device on a node that is not there'),
  devices_class: bug('a device class outside the list'),
  devices_health: bug('a device health outside the list'),
  node_conditions_node_exists: bug('a condition of a node that is not there'),
  node_conditions_effect: bug('a condition effect outside the list'),
  devices_claims_not_negative: bug('a device has fewer claims than none'),
  node_capacity_node_exists: bug('capacity of a node that is not there'),
  node_capacity_free_within: bug('the capacity summary left its bounds'),
  // Reservations
  reservations_draft_once: { code: 'CONTENTION', detail: 'the same request is being admitted at this moment' },
  reservations_duration: invalid('durationSeconds', 'must be between 1 second and 366 days'),
  reservations_lease: invalid('leaseSeconds', 'must be between 1 second and 366 days'),
  reservations_window: invalid('durationSeconds', 'the window would be empty'),
  device_bookings_window_not_empty: invalid('durationSeconds', 'the window would be empty'),
  device_bookings_no_overlap: { code: 'CONTENTION', detail: 'somebody else books these devices for this time' },
  usage_windows_seconds_not_negative: bug('negative usage'),
  // Webhooks
  webhook_deliveries_once: bug('one event was queued twice for one webhook'),
  webhook_deliveries_webhook_exists: missing('there is no such webhook'),
};
