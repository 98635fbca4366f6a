/**
 * `GET /v1/watch`: the event stream of a tenant as server-sent events. The Worker holds the stream; the tenant's Hub
 * tells it through a WebSocket that something is new; what is new is read from the outbox, which never skips. Without a
 * hub it looks by itself every few seconds. Ends after some minutes: the client resumes by Last-Event-ID.
 */
import { problem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { RequestContext } from '#services/context.ts';
import { watchFrom, watchPage } from '#services/events/index.ts';

const PAGE = 100;
const LOOK_MS = 2_000;
const HEARTBEAT_MS = 10_000;
const STREAM_MS_MAX = 5 * 60_000;
/** A client that does not read is cut off rather than kept in memory. */
const BEHIND_MAX = 64;

/** Calls back whenever the topic was poked; answers how to stop. Absent or failing hubs only make it slower. */
export type Subscribe = (tenantId: string, onPoke: () => void) => Promise<() => void>;

export function watchStream(subscribe: Subscribe) {
  return async (ctx: RequestContext, input: Record<string, unknown>, request: Request): Promise<Response> => {
    const { types, cursor } = input as { types?: string; cursor?: string };
    let after = await watchFrom(ctx, request.headers.get('last-event-id') ?? cursor);
    const ended = new AbortController();
    let wake = new AbortController();
    const poked = () => wake.abort();
    const stop = await subscribe(ctx.caller.tenantId, poked).catch(() => () => {});
    const encoder = new TextEncoder();

    const stream = new ReadableStream<Uint8Array>(
      {
        start(out) {
          const send = (text: string) => {
            if ((out.desiredSize ?? 0) < -BEHIND_MAX)
              throw problem('RATE_LIMITED', 'the client reads too slowly', { retryAfterSeconds: 1 });
            out.enqueue(encoder.encode(text));
          };
          const until = systemClock.now() + STREAM_MS_MAX;
          let spoke = systemClock.now();
          const run = async () => {
            send('retry: 1000\n\n');
            while (!ended.signal.aborted && systemClock.now() < until) {
              wake = new AbortController();
              const page = await watchPage(ctx, after, types, PAGE);
              after = page.after;
              for (const e of page.events) send(`id: ${e.cursor}\nevent: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`);
              if (page.events.length > 0) spoke = systemClock.now();
              if (page.events.length === PAGE) continue;
              if (systemClock.now() - spoke >= HEARTBEAT_MS) {
                send(': heartbeat\n\n');
                spoke = systemClock.now();
              }
              await systemClock.sleep(LOOK_MS, wake.signal).catch(() => {});
            }
          };
          run()
            .catch(() => {})
            .finally(() => {
              stop();
              if (!ended.signal.aborted) out.close();
            });
        },
        cancel() {
          ended.abort();
          wake.abort();
        },
      },
      { highWaterMark: BEHIND_MAX },
    );
    return new Response(stream, {
      headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
    });
  };
}
