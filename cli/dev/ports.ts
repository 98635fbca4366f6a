/** TCP ports on the loopback address. */
import { randomInt } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { systemClock } from '#core/kernel/time.ts';

/**
 * Below the range from which systems give ports to outgoing connections: one of those could otherwise take a port
 * between our asking and the server's listening.
 */
const LEAST = 10_240;
const MOST = 32_000;
const TRIES = 50;

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (let n = 0; n < TRIES; n++) {
    const port = randomInt(LEAST, MOST);
    if (await canListen(port)) return port;
  }
  throw new Error(`no free port found between ${LEAST} and ${MOST}`);
}

function canListen(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/** Whether something listens there. */
export function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: 1_000 });
    const done = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
    socket.once('timeout', () => done(false));
  });
}

/**
 * A port for each name, the same ones as last time where they are free: machines that joined remember their gateway's.
 * A given port is used as it is.
 */
export async function rememberedPorts<N extends string>(
  file: string,
  names: readonly N[],
  given: Partial<Record<N, number>> = {},
): Promise<Record<N, number>> {
  const before: Partial<Record<N, number>> = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
  const ports = {} as Record<N, number>;
  for (const name of names) {
    const last = before[name];
    ports[name] = given[name] || (last !== undefined && (await becomesFree(last)) ? last : await freePort());
  }
  writeFileSync(file, `${JSON.stringify(ports)}\n`, { mode: 0o600 });
  return ports;
}

/** What an earlier run left behind may need a few seconds to go. */
async function becomesFree(port: number): Promise<boolean> {
  for (let tenth = 0; tenth < 60; tenth++) {
    if (!(await isListening(port))) return true;
    await systemClock.sleep(100);
  }
  return false;
}
