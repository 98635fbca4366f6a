/**
 * `Hub`: one object a topic (a tenant). Watchers hold a WebSocket to it, which hibernates; a poke tells each of them
 * that there is something behind a cursor. It carries no events and keeps none: watchers read Postgres, and look there
 * now and then without a poke, so that a lost one only delays.
 */
import { DurableObject } from 'cloudflare:workers';
import type { DurableEnv } from './bindings.ts';

const WATCHERS_MAX = 2_000;

export class Hub extends DurableObject<DurableEnv> {
  constructor(ctx: DurableObjectState, env: DurableEnv) {
    super(ctx, env);
    // Answered while the object sleeps.
    ctx.setWebSocketAutoResponse(new WebSocketRequestResponsePair('ping', 'pong'));
  }

  override fetch(request: Request): Response {
    if (request.headers.get('upgrade') !== 'websocket') {
      return new Response('a WebSocket is expected here', { status: 426, headers: { upgrade: 'websocket' } });
    }
    if (this.ctx.getWebSockets().length >= WATCHERS_MAX) {
      return new Response('too many watchers', { status: 503, headers: { 'retry-after': '10' } });
    }
    const { 0: client, 1: server } = new WebSocketPair();
    this.ctx.acceptWebSocket(server);
    return new Response(null, { status: 101, webSocket: client });
  }

  /** Tells every watcher; answers how many. */
  poke(cursor = ''): number {
    let told = 0;
    for (const socket of this.ctx.getWebSockets()) {
      try {
        socket.send(cursor);
        told++;
      } catch {
        // It is closing; its watcher is gone.
      }
    }
    return told;
  }

  /** Watchers have nothing to say. */
  override webSocketMessage(): void {}

  override webSocketClose(socket: WebSocket): void {
    socket.close();
  }

  override webSocketError(): void {}
}
