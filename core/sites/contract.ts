/** Sites: boot and failure domains. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import {
  id,
  instant,
  itemParams,
  labels,
  listQuery,
  name,
  nothing,
  page,
  tenantId,
  version,
} from '../kernel/schemas.ts';

export const SiteKind = z.enum(['shared', 'dedicated', 'custom']).meta({
  description: "shared: for several tenants; dedicated: for one; custom: a tenant's own hardware",
});

/** The region-name grammar of the identity service. */
export const iamRegion = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/,
    'expected 1 to 63 lower-case letters, digits or "-", no "-" at an end',
  )
  .meta({ description: 'Region that policies decide on', example: 'eu-west-1' });

export const Site = z
  .object({
    id: id('site'),
    tenantId,
    name,
    kind: SiteKind,
    iamRegion: iamRegion.optional(),
    labels,
    version,
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Site' });

export const SiteCreate = z.strictObject({
  name,
  kind: SiteKind.default('shared'),
  iamRegion: iamRegion.optional(),
  labels: labels.default({}),
});
export const SiteUpdate = z.strictObject({
  name: name.optional(),
  iamRegion: iamRegion.nullable().optional(),
  labels: labels.optional(),
});

const resource = 'compute-site';

export const siteOperations = {
  'sites.create': operation({
    name: 'sites.create',
    method: 'post',
    path: '/v1/sites',
    body: SiteCreate,
    output: Site,
    successStatus: 201,
    iam: { action: 'compute:sites:create', resource, on: 'collection' },
    errors: ['CONFLICT'],
    idempotent: true,
    help: 'Create a site',
  }),
  'sites.get': operation({
    name: 'sites.get',
    method: 'get',
    path: '/v1/sites/{id}',
    params: itemParams('site'),
    output: Site,
    successStatus: 200,
    iam: { action: 'compute:sites:get', resource, on: 'item' },
    errors: ['NOT_FOUND'],
    idempotent: false,
    etag: true,
    help: 'Show a site',
  }),
  'sites.list': operation({
    name: 'sites.list',
    method: 'get',
    path: '/v1/sites',
    query: listQuery({}),
    output: page(Site),
    successStatus: 200,
    iam: { action: 'compute:sites:list', resource, on: 'collection' },
    errors: ['INVALID_CURSOR'],
    idempotent: false,
    columns: ['id', 'name', 'kind', 'iamRegion', 'createdAt'],
    help: 'List the sites',
  }),
  'sites.update': operation({
    name: 'sites.update',
    method: 'patch',
    path: '/v1/sites/{id}',
    params: itemParams('site'),
    body: SiteUpdate,
    output: Site,
    successStatus: 200,
    iam: { action: 'compute:sites:update', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT', 'VERSION_CONFLICT'],
    idempotent: true,
    etag: true,
    help: 'Change name, region or labels of a site',
  }),
  'sites.delete': operation({
    name: 'sites.delete',
    method: 'delete',
    path: '/v1/sites/{id}',
    params: itemParams('site'),
    output: nothing,
    successStatus: 200,
    iam: { action: 'compute:sites:delete', resource, on: 'item' },
    errors: ['NOT_FOUND', 'CONFLICT', 'VERSION_CONFLICT'],
    idempotent: true,
    help: 'Delete a site that has no pools',
  }),
} as const;
