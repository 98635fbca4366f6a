/** What the long-running subcommands share: a signal that ends them in order, and their log. */
import pino from 'pino';
import type { DaemonOptions } from '../session/daemon.ts';

/** Aborts at the first SIGTERM or SIGINT; the second one ends the process as usual. */
export function untilStopped(): AbortSignal {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stop.abort());
  return stop.signal;
}

/** JSON lines on stderr. */
export function daemonLog(about: Record<string, unknown>): DaemonOptions['log'] {
  const log = pino({ name: 'bcd', base: about }, pino.destination({ dest: 2, sync: true }));
  return (level, message, more) => log[level](more ?? {}, message);
}
