/** `better-compute watch`: the event stream, line by line, resumed after each break by the id last seen. */
import { problem } from '#core/kernel/errors.ts';
import { systemClock } from '#core/kernel/time.ts';

const RECONNECT_MS = 1000;

interface SseMessage {
  id?: string;
  event?: string;
  data: string;
}

/** Splits a byte stream into server-sent events. Comments (heartbeats) are dropped. */
export async function* sseMessages(body: AsyncIterable<Uint8Array>): AsyncGenerator<SseMessage> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    rest += decoder.decode(chunk, { stream: true });
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const message: SseMessage = { data: '' };
      for (const line of rest.slice(0, end).split('\n')) {
        const at = line.indexOf(':');
        if (at <= 0) continue;
        const value = line.slice(at + 1).replace(/^ /, '');
        const field = line.slice(0, at);
        if (field === 'data') message.data += message.data === '' ? value : `\n${value}`;
        else if (field === 'id') message.id = value;
        else if (field === 'event') message.event = value;
      }
      rest = rest.slice(end + 2);
      if (message.data !== '') yield message;
    }
  }
}

export async function printEvents(o: {
  url: string;
  token: string;
  input: Record<string, unknown>;
  json: boolean;
}): Promise<void> {
  const query = new URLSearchParams(Object.entries(o.input).map(([k, v]) => [k, String(v)]));
  let last: string | undefined;
  for (;;) {
    const answer = await fetch(`${o.url}/v1/watch?${query}`, {
      headers: {
        authorization: `Bearer ${o.token}`,
        accept: 'text/event-stream',
        ...(last === undefined ? {} : { 'last-event-id': last }),
      },
    }).catch(() => undefined);
    if (answer !== undefined && answer.status >= 400 && answer.status < 500) {
      throw problem('UNAUTHENTICATED', `the stream was refused: ${await answer.text()}`);
    }
    if (answer?.body != null) {
      for await (const m of sseMessages(answer.body as unknown as AsyncIterable<Uint8Array>)) {
        last = m.id ?? last;
        if (o.json) console.log(m.data);
        else {
          const e = JSON.parse(m.data) as { at: string; type: string; subject: { id: string } };
          console.log(`${e.at}  ${e.type}  ${e.subject.id}`);
        }
      }
    }
    await systemClock.sleep(RECONNECT_MS);
  }
}
