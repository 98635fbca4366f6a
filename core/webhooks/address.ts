/**
 * Where a webhook may point: the guard against being used to reach what is inside. It judges the URL when it is set,
 * and again, with every address that its name resolves to, at each attempt (plugins/webhook-transport).
 *
 * The URL parser has normalised the host before it is judged, so `0x7f.1`, `2130706433`, full-width digits and
 * percent-encoding are all the address that they would connect to.
 */
import ipaddr from 'ipaddr.js';
import { type Problem, problem } from '../kernel/errors.ts';

export interface AddressPolicy {
  /** One machine, in development: loopback over plain HTTP is allowed as well. Everything else stays refused. */
  readonly allowLoopback: boolean;
}

const URL_LENGTH_MAX = 2048;
const HTTPS_PORT = 443;
/** Below it live services that are no web servers. */
const PORT_MIN = 1024;
/** Names that resolve inside, whatever the resolver says elsewhere. */
const INSIDE = /(^|\.)(localhost|local|internal|intranet|lan|home\.arpa|localdomain)$/;
/** Public by its range, but a cloud's own channel to the machine. */
const METADATA = new Set(['168.63.129.16']);

/** The parsed URL. Throws INVALID_REQUEST on `url`, saying what is allowed. */
export function requireWebhookUrl(text: string, policy: AddressPolicy): URL {
  if (text.length > URL_LENGTH_MAX) throw refuse(`must be at most ${URL_LENGTH_MAX} characters`);
  if (/[\s\\]/.test(text) || [...text].some((c) => c < ' ' || c === '\u007f')) {
    throw refuse('must not hold white space, control characters or backslashes');
  }
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw refuse('is not an absolute URL');
  }
  const why = urlRefusal(url, policy);
  if (why !== undefined) throw refuse(why);
  return url;
}

/** Why this URL may not be called, or undefined. A name is not resolved here. */
export function urlRefusal(url: URL, policy: AddressPolicy): string | undefined {
  const host = hostOf(url);
  const address = addressOf(host);
  const loopback = host === 'localhost' || (address !== undefined && isLoopback(address));
  const excused = policy.allowLoopback && loopback;
  if (url.protocol !== 'https:' && !(excused && url.protocol === 'http:')) return 'must be https';
  if (url.username !== '' || url.password !== '') return 'must not hold a user name or password';
  if (url.hash !== '') return 'must not have a fragment';
  if (excused) return undefined;
  const port = url.port === '' ? HTTPS_PORT : Number(url.port);
  if (port !== HTTPS_PORT && port < PORT_MIN) return `must use port ${HTTPS_PORT}, or one from ${PORT_MIN} up`;
  if (address !== undefined) return addressRefusal(address, policy);
  if (!host.includes('.') || INSIDE.test(host)) return 'must name a public host';
  return undefined;
}

/** Why nothing may be sent to this address, or undefined when it is a public one. */
export function addressRefusal(address: string, policy: AddressPolicy): string | undefined {
  if (!ipaddr.isValid(address)) return 'is not an address';
  if (policy.allowLoopback && isLoopback(address)) return undefined;
  const ip = ipaddr.process(address);
  // Of IPv6 only 2000::/3 is public: this leaves out every range that carries an IPv4 address inside.
  const global =
    ip.range() === 'unicast' &&
    (ip.kind() === 'ipv4' || ip.match(ipaddr.parseCIDR('2000::/3') as [ipaddr.IPv6, number]));
  return global && !METADATA.has(ip.toString()) ? undefined : 'must not point to a private or reserved address';
}

/** The host without brackets and without the dot of a fully qualified name. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
}

/** The host as an address, when it is one. */
export function addressOf(host: string): string | undefined {
  return ipaddr.isValid(host) ? host : undefined;
}

function isLoopback(address: string): boolean {
  return ipaddr.process(address).range() === 'loopback';
}

function refuse(message: string): Problem {
  return problem('INVALID_REQUEST', `url ${message}`, { errors: [{ field: 'url', message }] });
}
