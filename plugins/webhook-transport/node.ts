/**
 * Webhook attempts from Node. The name is resolved once, every address it has is judged, and the connection goes to
 * the very addresses that were judged: a name that answers otherwise a moment later gains nothing.
 */
import { type LookupAddress, lookup } from 'node:dns';
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { LookupFunction } from 'node:net';
import { type AddressPolicy, addressRefusal, urlRefusal } from '#core/webhooks/address.ts';
import {
  ATTEMPT_SECONDS,
  EXCERPT_BYTES,
  excerptOf,
  retryAfterOf,
  type WebhookAnswer,
  type WebhookRequest,
  type WebhookTransport,
} from '#core/webhooks/transport.ts';

export interface NodeTransportOptions {
  readonly policy: AddressPolicy;
  /** All addresses of a name; the system's resolver unless given. */
  readonly resolve?: (host: string) => Promise<readonly LookupAddress[]>;
  readonly deadlineSeconds?: number;
}

class Refused extends Error {}

export function nodeTransport(o: NodeTransportOptions): WebhookTransport {
  const guarded = guardedLookup(o);
  return {
    async post(request) {
      const url = new URL(request.url);
      const why = urlRefusal(url, o.policy);
      if (why !== undefined) return { kind: 'refused', reason: `url ${why}` };
      const signal = AbortSignal.timeout((o.deadlineSeconds ?? ATTEMPT_SECONDS) * 1000);
      try {
        return await exchange(url, request, guarded, signal);
      } catch (e) {
        if (e instanceof Refused) return { kind: 'refused', reason: e.message };
        if (signal.aborted) return { kind: 'failed', reason: 'no answer within the deadline' };
        return { kind: 'failed', reason: reasonOf(e) };
      }
    },
  };
}

function exchange(
  url: URL,
  request: WebhookRequest,
  lookup: LookupFunction,
  signal: AbortSignal,
): Promise<WebhookAnswer> {
  return new Promise((resolve, reject) => {
    const send = url.protocol === 'https:' ? requestHttps : requestHttp;
    const body = Buffer.from(request.body);
    const req = send(url, {
      method: 'POST',
      // A kept connection would skip the lookup, and with it the guard.
      agent: false,
      headers: { ...request.headers, 'accept-encoding': 'identity', 'content-length': body.length },
      lookup,
      signal,
    });
    // Once an answer has begun, its status stands; a deadline then only ends the reading.
    let answered = false;
    req.on('error', (e) => {
      if (!answered) reject(e);
    });
    req.on('response', (res) => {
      answered = true;
      res.on('error', () => {});
      readExcerpt(res).then((excerpt) => {
        const retryAfterSeconds = retryAfterOf(res.headers['retry-after']);
        req.destroy();
        resolve({
          kind: 'answered',
          status: res.statusCode!,
          excerpt,
          ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
        });
      });
    });
    req.end(body);
  });
}

/** The beginning of the body, as far as it came: the status is known whatever becomes of the rest. */
async function readExcerpt(res: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of res as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > EXCERPT_BYTES) break;
    }
  } catch {
    // Cut off, or the deadline.
  }
  return excerptOf(Buffer.concat(chunks));
}

/** Node calls this for names only; addresses in the URL were judged with it. */
function guardedLookup(o: NodeTransportOptions): LookupFunction {
  const resolve = o.resolve ?? resolveAll;
  return (host, options, callback) => {
    resolve(host).then(
      (found) => {
        const why = found.map((a) => addressRefusal(a.address, o.policy)).find((r) => r !== undefined);
        if (why !== undefined) callback(new Refused(`${host} ${why}`), '', 0);
        else if (found[0] === undefined) callback(new Error(`${host} has no address`), '', 0);
        else if (options.all) callback(null, [...found]);
        else callback(null, found[0].address, found[0].family);
      },
      (e: Error) => callback(e, '', 0),
    );
  };
}

function resolveAll(host: string): Promise<LookupAddress[]> {
  return new Promise((resolve, reject) => {
    lookup(host, { all: true }, (e, found) => (e === null ? resolve(found) : reject(e)));
  });
}

/** What the tenant may read: the kind of failure, none of our own addresses. */
function reasonOf(e: unknown): string {
  const code = (e as { code?: unknown }).code;
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'the host name cannot be resolved';
    case 'ECONNREFUSED':
      return 'the connection was refused';
    case 'ECONNRESET':
    case 'EPIPE':
      return 'the connection was reset';
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return 'the host cannot be reached';
  }
  return typeof code === 'string' && /^[A-Z_]{3,60}$/.test(code)
    ? `the connection failed (${code})`
    : 'the connection failed';
}
