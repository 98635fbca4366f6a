/** A customer's endpoint on loopback: keeps what it was sent and answers as told. */
import { createServer, type RequestListener } from 'node:http';

export interface ReceivedWebhook {
  readonly path: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface WebhookReceiver {
  readonly url: string;
  readonly received: ReceivedWebhook[];
  /** Answers of a path, in turn; the last one stays. 200 where nothing is set. */
  answer(path: string, ...answers: (number | RequestListener)[]): void;
  close(): Promise<void>;
}

export async function webhookReceiver(): Promise<WebhookReceiver> {
  const received: ReceivedWebhook[] = [];
  const answers = new Map<string, (number | RequestListener)[]>();
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on('data', (c) => chunks.push(c));
    req.on('end', () => {
      const path = req.url!;
      received.push({
        path,
        body: Buffer.concat(chunks).toString(),
        headers: Object.fromEntries(Object.entries(req.headers).map(([k, v]) => [k, String(v)])),
      });
      const list = answers.get(path) ?? [200];
      const next = list.length > 1 ? list.shift()! : list[0]!;
      if (typeof next === 'function') return next(req, res);
      res.writeHead(next);
      res.end(`answered ${next}`);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    received,
    answer: (path, ...list) => void answers.set(path, list),
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
