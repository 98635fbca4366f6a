/**
 * SPIFFE IDs of machines: `spiffe://<trust-domain>/site/<site>/node/<node>`. JoinService alone gives them out; no tenant
 * appears in them, so a node that changes hands keeps its name.
 */
import { type Id, isId } from '../kernel/ids.ts';

export interface NodeName {
  readonly trustDomain: string;
  readonly siteId: Id<'site'>;
  readonly nodeId: Id<'node'>;
}

export const DEFAULT_TRUST_DOMAIN = 'bettercompute.internal';
const TRUST_DOMAIN = /^[a-z0-9._-]{1,255}$/;
const NODE_URI = /^spiffe:\/\/([^/?#]+)\/site\/([^/?#]+)\/node\/([^/?#]+)$/;

export function spiffeId(name: { trustDomain: string; siteId: string; nodeId: string }): string {
  return `spiffe://${name.trustDomain}/site/${name.siteId}/node/${name.nodeId}`;
}

/** Undefined for every other URI, however similar: upper case, a query, a port, a trailing slash. */
export function parseSpiffeId(uri: string): NodeName | undefined {
  if (uri.length > 2048) return undefined;
  const [, trustDomain, siteId, nodeId] = NODE_URI.exec(uri) ?? [];
  if (trustDomain === undefined || !TRUST_DOMAIN.test(trustDomain)) return undefined;
  if (!isId('site', siteId) || !isId('node', nodeId)) return undefined;
  return { trustDomain, siteId, nodeId };
}
