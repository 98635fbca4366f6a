/** The port through which one attempt leaves the house. Implementations stand in plugins/webhook-transport. */
export interface WebhookRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export type WebhookAnswer =
  /** The endpoint answered. Redirects are answers like any other and never followed. */
  | {
      readonly kind: 'answered';
      readonly status: number;
      /** At most 1 KiB of printable text. */
      readonly excerpt: string;
      readonly retryAfterSeconds?: number;
    }
  /** Nothing was sent: the guard does not allow the address. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** No answer: name not found, connection refused, deadline. Whether it arrived is not known. */
  | { readonly kind: 'failed'; readonly reason: string };

export interface WebhookTransport {
  /** Never throws, and ends within its deadline. */
  post(request: WebhookRequest): Promise<WebhookAnswer>;
}

/** Connection, request and answer together. */
export const ATTEMPT_SECONDS = 10;
export const EXCERPT_BYTES = 1024;

/** What a tenant may see of an answer: text, without control characters, cut at a character's edge. */
export function excerptOf(bytes: Uint8Array): string {
  const text = new TextDecoder('utf-8', { fatal: false, ignoreBOM: false }).decode(bytes.subarray(0, EXCERPT_BYTES));
  const cut = bytes.length > EXCERPT_BYTES ? text.replace(/\ufffd+$/, '') : text;
  return [...cut].map((c) => (isPrintable(c) ? c : '\ufffd')).join('');
}

function isPrintable(c: string): boolean {
  return c === '\n' || c === '\t' || !/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/u.test(c);
}

/** Seconds of a Retry-After header that counts seconds; dates are left alone. */
export function retryAfterOf(header: string | null | undefined): number | undefined {
  return header != null && /^\d{1,6}$/.test(header.trim()) ? Number(header.trim()) : undefined;
}
