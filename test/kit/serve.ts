/** A handler of web requests behind a real port on loopback. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';

export interface Served {
  readonly url: string;
  close(): Promise<void>;
}

export async function serve(handler: (request: Request) => Response | Promise<Response>): Promise<Served> {
  const server = createServer(async (req, res) => {
    const headers = new Headers();
    for (let i = 0; i < req.rawHeaders.length; i += 2) headers.append(req.rawHeaders[i]!, req.rawHeaders[i + 1]!);
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const body = req.method === 'GET' || req.method === 'HEAD' ? null : Buffer.concat(chunks);
    const response = await handler(
      new Request(`http://${req.headers.host}${req.url}`, { method: req.method!, headers, body }),
    );
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body === null) res.end();
    else Readable.fromWeb(response.body as never).pipe(res);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
