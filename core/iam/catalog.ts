/**
 * What policies may name: actions, resource types with their attributes, and the context keys this engine supplies. The
 * embedded engine decides by it; the operator of a remote service loads the same catalog there.
 */

/**
 * Resource types and the attributes that their rows carry for policies, beside owner and parent. Scalars or lists of
 * strings. A row may lack any of them; a policy may name no other.
 */
export const RESOURCE_TYPES = {
  'compute-site': ['name', 'region', 'site', 'labels'],
  'compute-pool': ['name', 'class', 'model', 'region', 'site', 'sharing', 'labels'],
  'compute-offer': ['name', 'pool', 'tenant', 'priority'],
  'compute-join-token': ['name', 'pool', 'site', 'maxUses', 'ttlSeconds'],
  'compute-node': ['name', 'class', 'model', 'pool', 'region', 'site', 'labels', 'state'],
  'compute-device': ['class', 'model', 'node', 'pool', 'region', 'site', 'memoryBytes'],
  'compute-reservation': [
    'name',
    'binding',
    'class',
    'count',
    'devices',
    'durationSeconds',
    'gpus',
    'hours',
    'leaseSeconds',
    'model',
    'pool',
    'projectId',
    'region',
    'site',
    'spendLimit',
    'start',
    'state',
  ],
  'compute-allocation': ['node', 'pool', 'region', 'reservation', 'site'],
  'compute-instance': ['name', 'flavor', 'image', 'pool', 'projectId', 'region', 'site', 'state'],
  'compute-quota': ['pool', 'resource', 'tenant'],
  'compute-usage': ['meter', 'pool'],
  'compute-event': ['type'],
  'compute-webhook': ['name', 'url'],
  'compute-delivery': ['webhook', 'state'],
  'compute-gateway': ['name', 'region'],
  'compute-command': ['kind', 'lane', 'node'],
  'compute-tunnel': ['node', 'kind', 'port'],
  'compute-work': ['kind'],
  'compute-audit': [],
  'compute-project': ['name'],
  'compute-capacity': ['pool', 'region', 'site'],
} as const satisfies Record<`compute-${string}`, readonly string[]>;

/** Management of the identity service itself, asked of the same evaluator. */
export const IAM_ACTIONS = [
  'iam:tenants:create',
  'iam:tenants:read',
  'iam:tenants:update',
  'iam:identities:create',
  'iam:identities:read',
  'iam:identities:update',
  'iam:apiKeys:create',
  'iam:apiKeys:read',
  'iam:apiKeys:revoke',
  'iam:sessions:revoke',
  'iam:policies:create',
  'iam:policies:read',
  'iam:policies:update',
  'iam:policies:delete',
  'iam:policies:test',
  'iam:roles:create',
  'iam:roles:read',
  'iam:roles:update',
  'iam:roles:delete',
  'iam:groups:create',
  'iam:groups:read',
  'iam:groups:update',
  'iam:bindings:create',
  'iam:bindings:read',
  'iam:bindings:delete',
  'iam:delegations:read',
  'iam:delegations:revoke',
  'iam:billing:record',
  'iam:features:read',
  'iam:features:set',
  'iam:audit:read',
] as const;

const PRINCIPAL_KEYS = [
  'id',
  'tenantId',
  'mfa',
  'kind',
  'owner',
  'rootAdmin',
  'sessionKind',
  'sessionId',
  'sessionName',
  'tokenIssueTime',
  'authTime',
  'mfaTime',
  'impersonated',
  'groups',
  'roles',
  'delegated',
  'delegationId',
  'delegationChain',
  'agentId',
  'agentSponsorId',
] as const;

const FIXED_KEYS = new Set<string>([
  ...PRINCIPAL_KEYS.map((name) => `principal.${name}`),
  'resource.tenantId',
  'resource.ownerId',
  'resource.parentId',
  'resource.parentType',
  'request.time',
  'request.sourceIp',
  'tenant.features',
]);

export interface Catalog {
  readonly actions: ReadonlySet<string>;
  readonly types: ReadonlySet<string>;
  readonly resourceAttributes: ReadonlySet<string>;
  /** Attributes that identities may carry; policies read them as `principal.<name>`. */
  readonly principalAttributes: ReadonlySet<string>;
}

export interface CatalogOptions {
  /** Further resource types and the attributes of their rows. */
  readonly types?: Readonly<Record<string, readonly string[]>>;
  readonly principalAttributes?: readonly string[];
}

export const PRINCIPAL_ATTRIBUTES = ['department', 'team', 'costCenter', 'location'] as const;

const ACTION = /^[^\s*?]{1,256}$/;
const TYPE = /^[a-z][a-z0-9-]{0,63}$/;
const ATTRIBUTE = /^[a-zA-Z][a-zA-Z0-9_]{0,63}$/;

function checked(what: string, names: Iterable<string>, shape: RegExp): ReadonlySet<string> {
  const set = new Set(names);
  for (const name of set) {
    if (!shape.test(name)) throw new TypeError(`${JSON.stringify(name)} is not a valid ${what}`);
  }
  return set;
}

/** `actions` are those of the operations table, `compute:<collection>:<verb>`. A malformed name is our own mistake. */
export function iamCatalog(actions: readonly string[], options: CatalogOptions = {}): Catalog {
  const own = actions.find((action) => action.startsWith('iam:'));
  if (own !== undefined) throw new TypeError(`${own} is reserved for the identity service`);
  const types: Record<string, readonly string[]> = { ...RESOURCE_TYPES, ...options.types };
  const attributes = checked('attribute', Object.values(types).flat(), ATTRIBUTE);
  if (attributes.has('tenantId')) throw new TypeError('tenantId is no attribute: it is always supplied');
  const principal = checked('attribute', options.principalAttributes ?? PRINCIPAL_ATTRIBUTES, ATTRIBUTE);
  const shadowed = PRINCIPAL_KEYS.find((name) => principal.has(name));
  if (shadowed !== undefined) throw new TypeError(`principal.${shadowed} is set by the engine`);
  return {
    actions: checked('action', [...actions, ...IAM_ACTIONS], ACTION),
    types: new Set([...checked('resource type', Object.keys(types), TYPE), 'iam']),
    resourceAttributes: attributes,
    principalAttributes: principal,
  };
}

/** Whether a decision can ever see this key. */
export function suppliesKey(catalog: Catalog, key: string): boolean {
  if (FIXED_KEYS.has(key)) return true;
  const [space, ...rest] = key.split('.');
  const name = rest.join('.');
  if (space === 'resource') return catalog.resourceAttributes.has(name);
  return space === 'principal' && catalog.principalAttributes.has(name);
}
