/**
 * What the database says about one credential at one instant (SQL `iam.snapshot`), and the pure readings of it: whether
 * the credential still stands, what policies may look at, and the facts of a decision. A snapshot may be some seconds
 * old; `now` is given beside it, so that what ends meanwhile ends on time.
 */
import { fromMillis } from '../kernel/time.ts';
import type { Catalog } from './catalog.ts';
import type { DecisionFacts, TenantStatus } from './decide.ts';
import type { Context, ContextValue } from './glob.ts';
import type { PolicyDocument } from './policy.ts';
import type { AuthzResource, IdentityKind, RequestMeta, SessionKind } from './port.ts';

export interface IdentityFacts {
  readonly id: string;
  readonly tenantId: string;
  readonly kind: IdentityKind;
  readonly status: 'active' | 'suspended' | 'deleted';
  readonly rootAdmin: boolean;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  readonly boundary: PolicyDocument | null;
  readonly sponsorId: string | null;
  readonly sponsorStatus: string | null;
}

/** Instants are milliseconds since the epoch. */
export interface Snapshot {
  readonly epoch: number;
  readonly now: number;
  readonly session: {
    readonly id: string;
    readonly kind: Extract<SessionKind, 'user' | 'api-key' | 'delegated'>;
    readonly tenantId: string;
    readonly name: string;
    readonly boundaries: readonly PolicyDocument[];
    readonly issuedAt: number;
    readonly mfaAt: number | null;
    /** The first of expiry, revocation, and the end of the credential it came from. */
    readonly endsAt: number;
    readonly expiresAt: number;
  };
  readonly identity: IdentityFacts;
  /** From the session's tenant up to the root. */
  readonly chain: readonly {
    readonly id: string;
    readonly type: string;
    readonly status: TenantStatus;
    readonly boundary: PolicyDocument | null;
  }[];
  readonly groups: readonly { readonly id: string; readonly expiresAt: number | null }[];
  readonly paths: readonly {
    readonly roleId: string;
    readonly owner: boolean;
    readonly startsAt: number | null;
    readonly expiresAt: number | null;
    readonly grants: readonly PolicyDocument[];
  }[];
  readonly delegation: {
    readonly id: string;
    readonly status: 'pending' | 'active' | 'denied' | 'revoked';
    readonly expiresAt: number;
    readonly policy: PolicyDocument;
    readonly confirm: readonly string[];
    readonly agent: IdentityFacts;
    readonly approvals: readonly { readonly key: string; readonly until: number }[];
  } | null;
  readonly features: readonly string[];
}

function inGoodStanding(identity: IdentityFacts): boolean {
  return identity.status === 'active' && (identity.sponsorId === null || identity.sponsorStatus === 'active');
}

/** Whether the credential may be used at all. Everything it rests on is asked again each time. */
export function stands(s: Snapshot, now: number): boolean {
  if (now >= s.session.endsAt || !inGoodStanding(s.identity)) return false;
  if (s.session.kind !== 'delegated') return true;
  const d = s.delegation;
  return d !== null && d.status === 'active' && now < d.expiresAt && inGoodStanding(d.agent);
}

export function tenantActive(s: Snapshot): boolean {
  return s.chain.every((tenant) => tenant.status === 'active');
}

export const hasMfa = (s: Snapshot): boolean => s.session.kind === 'user' && s.session.mfaAt !== null;
export const inRoot = (s: Snapshot): boolean => s.chain[0]?.type === 'root';

/** Only a person's own session in the root tenant, with a second factor. An API key never crosses tenants. */
export function overridesPolicies(s: Snapshot): boolean {
  return s.identity.rootAdmin && s.identity.kind === 'user' && hasMfa(s) && inRoot(s);
}

const live = (x: { startsAt?: number | null; expiresAt: number | null }, now: number): boolean =>
  (x.startsAt ?? Number.NEGATIVE_INFINITY) <= now && now < (x.expiresAt ?? Number.POSITIVE_INFINITY);

const OWNED = new Set(['tenantId', 'ownerId', 'parentId', 'parentType', 'relations', 'parentRelations']);

function resourceContext(resource: Omit<AuthzResource, 'type'>): Context {
  const context: Record<string, ContextValue | undefined> = {};
  for (const [name, value] of Object.entries(resource.attributes ?? {})) {
    if (value !== null && !OWNED.has(name)) context[`resource.${name}`] = value;
  }
  return {
    ...context,
    'resource.tenantId': resource.tenantId,
    'resource.ownerId': resource.ownerId,
    'resource.parentId': resource.parentId,
    'resource.parentType': resource.parentType,
  };
}

function principalContext(s: Snapshot, now: number): Context {
  const { session, identity, delegation } = s;
  const own = session.kind === 'user';
  const attributes = Object.entries(identity.attributes).map(([name, value]) => [`principal.${name}`, value]);
  const agent = delegation?.agent ?? (identity.kind === 'agent' ? identity : undefined);
  return {
    ...Object.fromEntries(attributes),
    'principal.id': identity.id,
    'principal.tenantId': identity.tenantId,
    'principal.kind': identity.kind,
    'principal.mfa': hasMfa(s),
    'principal.mfaTime': hasMfa(s) ? fromMillis(session.mfaAt!) : undefined,
    'principal.owner': own && s.paths.some((path) => path.owner && live(path, now)),
    'principal.rootAdmin': own && identity.rootAdmin,
    'principal.sessionKind': session.kind,
    'principal.sessionId': session.id,
    'principal.sessionName': session.name === '' ? undefined : session.name,
    'principal.tokenIssueTime': fromMillis(session.issuedAt),
    'principal.authTime': fromMillis(session.issuedAt),
    'principal.impersonated': false,
    'principal.groups': s.groups.filter((group) => live(group, now)).map((group) => group.id),
    'principal.roles': [...new Set(s.paths.filter((path) => live(path, now)).map((path) => path.roleId))].sort(),
    'principal.delegated': delegation !== null,
    'principal.delegationId': delegation?.id,
    'principal.delegationChain': delegation === null ? undefined : [delegation.id],
    'principal.agentId': agent?.id,
    'principal.agentSponsorId': agent?.sponsorId ?? undefined,
  };
}

export function contextOf(
  s: Snapshot,
  now: number,
  resource: Omit<AuthzResource, 'type'>,
  meta: Pick<RequestMeta, 'sourceIp'>,
): Context {
  return {
    ...resourceContext(resource),
    ...principalContext(s, now),
    'request.time': fromMillis(now),
    'request.sourceIp': meta.sourceIp,
    'tenant.features': s.features,
  };
}

/** Ceilings that count on every path: tenants, person or key holder, session, and for a delegated session its agent's. */
export function commonBoundaries(s: Snapshot): PolicyDocument[] {
  return [
    ...s.chain.map((tenant) => tenant.boundary),
    s.identity.boundary,
    ...s.session.boundaries,
    s.delegation?.policy ?? null,
    s.delegation?.agent.boundary ?? null,
  ].filter((document) => document !== null);
}

/** `chain` holds the target's statuses where the target is not the session's own tenant. */
export function factsOf(
  s: Snapshot,
  now: number,
  catalog: Catalog,
  targetTenant: string,
  chain: readonly TenantStatus[] = s.chain.map((tenant) => tenant.status),
): DecisionFacts {
  return {
    targetTenant,
    chain,
    session: { tenant: s.session.tenantId, rootOverride: overridesPolicies(s) },
    knows: (action) => catalog.actions.has(action),
    paths: s.paths.filter((path) => live(path, now)).map((path) => ({ grants: path.grants, boundaries: [] })),
    common: commonBoundaries(s),
    confirm: s.delegation?.confirm ?? [],
    approved: new Set((s.delegation?.approvals ?? []).filter((a) => now < a.until).map((a) => a.key)),
  };
}
