/**
 * A listening port that holds a herd before TLS. Sockets are accepted paused and wait in a bounded queue; a token
 * bucket lets them into the handshake, which is where the cost is. A waiting socket costs a file descriptor and no
 * cryptography. Beyond the bound sockets are closed at once: their clients back off with full jitter.
 *
 * It also keeps the socket of every connection, since only its destruction ends a stream whose peer is silently gone.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '#core/kernel/time.ts';
import { TokenBucket } from './token-bucket.ts';

export interface ListenerOptions {
  readonly host: string;
  readonly port: number;
  readonly connectsPerSecond: number;
  readonly clock: Clock;
  /** Hands a socket into TLS. */
  readonly admit: (socket: Socket) => void;
  /** A connection that opened nothing for so long is closed. */
  readonly idleMs: number;
}

interface Connection {
  readonly socket: Socket;
  readonly since: number;
  /** Something lives on it that has its own deadline. */
  claimed: boolean;
}

/** How long a client waits for its connection: queueing longer than that would admit only those who left. */
const CONNECT_DEADLINE_SECONDS = 20;
const BURST_SECONDS = 0.2;
const BACKLOG = 4096;

export class PausedListener {
  readonly counters = { accepted: 0, admitted: 0, turnedAway: 0 };
  private readonly server: Server;
  private readonly options: ListenerOptions;
  private readonly bucket: TokenBucket;
  private readonly queue: Socket[] = [];
  private readonly connections = new Map<string, Connection>();
  private pumping = false;
  private readonly stopped = new AbortController();

  constructor(options: ListenerOptions) {
    this.options = options;
    const burst = Math.max(1, options.connectsPerSecond * BURST_SECONDS);
    this.bucket = new TokenBucket(options.connectsPerSecond, burst, options.clock.now());
    this.server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (socket) => this.hold(socket));
  }

  async listen(): Promise<number> {
    const { port, host } = this.options;
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen({ port, host, backlog: BACKLOG }, () => {
        this.server.off('error', reject);
        // EMFILE and its kin: this connection is lost, the port stays.
        this.server.on('error', () => {});
        resolve();
      });
    });
    return (this.server.address() as { port: number }).port;
  }

  get waiting(): number {
    return this.queue.length;
  }
  get open(): number {
    return this.connections.size;
  }

  /** The connection of this peer carries something with a deadline of its own from now on. */
  claim(peer: string): void {
    const connection = this.connections.get(peer);
    if (connection !== undefined) connection.claimed = true;
  }

  /** Ends a connection whatever its state: no goodbye, no waiting for the peer. */
  destroy(peer: string): void {
    this.connections.get(peer)?.socket.destroy();
  }

  /** Closes connections that opened nothing. */
  sweep(): void {
    const limit = this.options.clock.now() - this.options.idleMs;
    for (const { socket, since, claimed } of this.connections.values()) {
      if (!claimed && since < limit) socket.destroy();
    }
  }

  /** No new connections; those that stand stay. */
  async stopAccepting(): Promise<void> {
    this.stopped.abort();
    for (const socket of this.queue.splice(0)) socket.destroy();
    this.server.close();
  }

  destroyAll(): void {
    for (const { socket } of this.connections.values()) socket.destroy();
  }

  private hold(socket: Socket): void {
    this.counters.accepted++;
    // A reset while it waits is an event of a socket nobody reads yet.
    socket.on('error', () => {});
    const bound = this.options.connectsPerSecond * CONNECT_DEADLINE_SECONDS;
    if (this.stopped.signal.aborted || this.queue.length >= bound) {
      this.counters.turnedAway++;
      socket.destroy();
      return;
    }
    this.queue.push(socket);
    void this.pump();
  }

  private async pump(): Promise<void> {
    if (this.pumping) return;
    this.pumping = true;
    const { clock } = this.options;
    try {
      while (this.queue.length > 0) {
        const wait = this.bucket.take(clock.now());
        if (wait > 0) {
          await clock.sleep(wait, this.stopped.signal);
          continue;
        }
        const socket = this.queue.shift();
        if (socket !== undefined && !socket.destroyed) this.enter(socket);
      }
    } catch {
      // Stopped while waiting; stopAccepting() has closed what waited.
    } finally {
      this.pumping = false;
    }
  }

  private enter(socket: Socket): void {
    const peer = `${socket.remoteAddress}:${socket.remotePort}`;
    this.counters.admitted++;
    this.connections.set(peer, { socket, since: this.options.clock.now(), claimed: false });
    socket.once('close', () => {
      if (this.connections.get(peer)?.socket === socket) this.connections.delete(peer);
    });
    this.options.admit(socket);
  }
}
