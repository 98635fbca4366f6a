/**
 * The gateway's questions to the API: admissions and renewals, since the key that signs is there, and pokes. Every call
 * has a deadline; whatever goes wrong on the way is UNAVAILABLE, which a machine retries.
 */
import type { z } from 'zod';
import { Admission, Certificate, type JoinRequest, type RenewRequest } from '#core/join/evidence.ts';
import { ERRORS, type ErrorCode, Problem } from '#core/kernel/errors.ts';
import type { Clock } from '#core/kernel/time.ts';

interface Wake {
  readonly kind: string;
  readonly key: string;
}

export interface ApiClientOptions {
  readonly url: string;
  readonly token: string;
  readonly gatewayId: string;
  readonly clock: Clock;
  readonly onError?: (e: unknown) => void;
}

const DEADLINE_MS = 15_000;
const POKE_DELAY_MS = 20;
const POKES_MAX = 1000;

export class ApiClient {
  private readonly options: ApiClientOptions;
  private wakes = new Map<string, Wake>();
  private poking = false;

  constructor(options: ApiClientOptions) {
    this.options = options;
  }

  async challenge(): Promise<string> {
    return ((await this.post('challenge', {})) as { challenge: string }).challenge;
  }
  async join(request: JoinRequest, sourceIp: string | undefined): Promise<Admission> {
    return this.parse(Admission, await this.post('join', request, sourceIp));
  }
  async renew(request: RenewRequest): Promise<Certificate> {
    return this.parse(Certificate, await this.post('renew', request));
  }

  /** Tells the reconcilers what was woken, together with what else comes within moments. A lost poke only costs time. */
  readonly poke = (wakes: readonly Wake[]): void => {
    for (const w of wakes) if (this.wakes.size < POKES_MAX) this.wakes.set(`${w.kind}/${w.key}`, w);
    if (this.poking || this.wakes.size === 0) return;
    this.poking = true;
    void this.options.clock
      .sleep(POKE_DELAY_MS)
      .then(() => {
        const batch = [...this.wakes.values()];
        this.wakes = new Map();
        this.poking = false;
        return this.post('poke', { wakes: batch });
      })
      .catch((e: unknown) => this.options.onError?.(e));
  };

  private parse<S extends z.ZodType>(schema: S, data: unknown): z.output<S> {
    const result = schema.safeParse(data);
    if (!result.success) throw new Problem('INTERNAL', 'the API answered something else', undefined, result.error);
    return result.data;
  }

  private async post(path: string, body: unknown, sourceIp?: string): Promise<unknown> {
    const { url, token, gatewayId } = this.options;
    let status: number;
    let text: string;
    try {
      const response = await fetch(`${url}/internal/${path}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${token}`,
          'content-type': 'application/json',
          'x-request-id': crypto.randomUUID(),
          'x-gateway-id': gatewayId,
          ...(sourceIp === undefined ? {} : { 'x-source-ip': sourceIp }),
        },
        body: JSON.stringify(body),
        redirect: 'error',
        signal: AbortSignal.timeout(DEADLINE_MS),
      });
      status = response.status;
      text = await response.text();
    } catch (e) {
      throw new Problem('UNAVAILABLE', 'the API does not answer at the moment', { retryAfterSeconds: 2 }, e);
    }
    if (status === 200) return JSON.parse(text);
    throw problemFrom(status, text);
  }
}

function problemFrom(status: number, text: string): Problem {
  try {
    const body = JSON.parse(text) as { code?: string; detail?: string; [key: string]: unknown };
    const code = body.code ?? '';
    // The gateway's own credential was refused: that is no fault of the machine that asked.
    if (Object.hasOwn(ERRORS, code) && code !== 'UNAUTHENTICATED') {
      const { code: _, detail, ...details } = body;
      return new Problem(code as ErrorCode, detail ?? '', details as never);
    }
  } catch {
    // Not ours: a proxy's page.
  }
  return new Problem(
    'UNAVAILABLE',
    'admissions are not possible at the moment',
    { retryAfterSeconds: 5 },
    `${status} ${text.slice(0, 200)}`,
  );
}
