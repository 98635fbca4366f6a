/**
 * Webhook attempts where only fetch() leads outside, as in Workers. The name is resolved and every address it has is
 * judged first, but fetch() resolves again for itself: the address cannot be pinned there. What closes that gap is the
 * host: Workers have no private network, and `global_fetch_strictly_public` keeps fetch() on the public internet.
 */
import { type AddressPolicy, addressOf, addressRefusal, hostOf, urlRefusal } from '#core/webhooks/address.ts';
import {
  ATTEMPT_SECONDS,
  EXCERPT_BYTES,
  excerptOf,
  retryAfterOf,
  type WebhookTransport,
} from '#core/webhooks/transport.ts';

export interface FetchTransportOptions {
  readonly policy: AddressPolicy;
  /** All addresses of a name, IPv4 and IPv6. */
  readonly resolve: (host: string) => Promise<readonly string[]>;
  readonly deadlineSeconds?: number;
}

export function fetchTransport(o: FetchTransportOptions): WebhookTransport {
  return {
    async post(request) {
      const url = new URL(request.url);
      const why = urlRefusal(url, o.policy);
      if (why !== undefined) return { kind: 'refused', reason: `url ${why}` };
      const signal = AbortSignal.timeout((o.deadlineSeconds ?? ATTEMPT_SECONDS) * 1000);
      const judged = await within(judge(hostOf(url), o), signal);
      if (judged !== undefined) return judged;
      let response: Response;
      try {
        response = await fetch(url, {
          method: 'POST',
          headers: { ...request.headers, 'accept-encoding': 'identity' },
          body: request.body,
          redirect: 'manual',
          signal,
        });
      } catch {
        return {
          kind: 'failed',
          reason: signal.aborted ? 'no answer within the deadline' : 'the host cannot be reached',
        };
      }
      const retryAfterSeconds = retryAfterOf(response.headers.get('retry-after'));
      return {
        kind: 'answered',
        status: response.status,
        excerpt: await readExcerpt(response),
        ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      };
    },
  };
}

type Refusal = { kind: 'refused' | 'failed'; reason: string };

/** Undefined when every address of the host may be called. An address in the URL was judged with it. */
async function judge(host: string, o: FetchTransportOptions): Promise<Refusal | undefined> {
  if (addressOf(host) !== undefined || (o.policy.allowLoopback && host === 'localhost')) return undefined;
  let found: readonly string[];
  try {
    found = await o.resolve(host);
  } catch {
    return { kind: 'failed', reason: 'the host name cannot be resolved' };
  }
  if (found.length === 0) return { kind: 'failed', reason: 'the host name has no address' };
  const why = found.map((a) => addressRefusal(a, o.policy)).find((r) => r !== undefined);
  return why === undefined ? undefined : { kind: 'refused', reason: `${host} ${why}` };
}

function within(work: Promise<Refusal | undefined>, signal: AbortSignal): Promise<Refusal | undefined> {
  const late = new Promise<Refusal>((resolve) => {
    signal.addEventListener('abort', () => resolve({ kind: 'failed', reason: 'no answer within the deadline' }));
  });
  return Promise.race([work, late]);
}

/** The beginning of the body, as far as it came; the rest is not read. */
async function readExcerpt(response: Response): Promise<string> {
  if (response.body === null) return '';
  const reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  const bytes = new Uint8Array(EXCERPT_BYTES + 1);
  let size = 0;
  try {
    while (size < bytes.length) {
      const { done, value } = await reader.read();
      if (done) break;
      const taken = value.subarray(0, bytes.length - size);
      bytes.set(taken, size);
      size += taken.length;
    }
  } catch {
    // Cut off, or the deadline.
  }
  // Not awaited: an endpoint that never ends must not hold the attempt.
  void reader.cancel().catch(() => {});
  return excerptOf(bytes.subarray(0, size));
}
