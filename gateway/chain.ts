/** The chain that the gateway shows: its own certificate and the authority's, which is what a joining machine pinned. */
import { fromPem, toBase64, toPem } from '#core/join/bytes.ts';
import type { GatewayConfig } from './config.ts';

export function servedChain(config: Pick<GatewayConfig, 'certificatePem' | 'authoritiesPem'>): string {
  const all = [...fromPem('CERTIFICATE', config.certificatePem), ...fromPem('CERTIFICATE', config.authoritiesPem)];
  const once = new Map(all.map((der) => [toBase64(der), der]));
  return [...once.values()].map((der) => toPem('CERTIFICATE', der)).join('');
}
