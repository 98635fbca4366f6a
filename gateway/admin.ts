/** Liveness (`/livez`), readiness (`/readyz`) and metrics over plain HTTP, for whoever runs the process. */
import { createServer, type Server } from 'node:http';

export interface AdminSource {
  /** Undefined when ready, else why not. */
  readonly notReady: () => string | undefined;
  /** Name -> value, or -> label text and value. */
  readonly metrics: () => Readonly<Record<string, number>>;
}

export async function serveAdmin(host: string, port: number, source: AdminSource): Promise<Server> {
  const server = createServer((request, response) => {
    const answer = (status: number, text: string) => {
      response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
      response.end(`${text}\n`);
    };
    if (request.method !== 'GET') return answer(405, 'GET only');
    switch (request.url) {
      case '/livez':
        return answer(200, 'alive');
      case '/readyz': {
        const why = source.notReady();
        return why === undefined ? answer(200, 'ready') : answer(503, why);
      }
      case '/metrics':
        return answer(
          200,
          Object.entries(source.metrics())
            .map(([name, value]) => `bettercompute_gateway_${name} ${value}`)
            .join('\n'),
        );
      default:
        return answer(404, 'see /livez, /readyz and /metrics');
    }
  });
  server.requestTimeout = 5_000;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  return server;
}
