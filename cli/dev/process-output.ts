/** What a process says, line by line. */
import type { Readable } from 'node:stream';
import { systemClock } from '#core/kernel/time.ts';
import type { GuardedProcess } from './guarded-process.ts';

/** Calls `line` for each line of a stream. */
export function eachLine(from: Readable, line: (text: string) => void): void {
  let rest = '';
  from.setEncoding('utf8');
  from.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const text of lines) line(text);
  });
  from.on('end', () => {
    if (rest !== '') line(rest);
  });
}

/**
 * Resolves with what `match` finds in a line of the output, whose lines all go to `log`. Rejects when the process ends
 * first or is silent for too long; it is stopped then.
 */
export async function untilLine<T>(
  process: GuardedProcess,
  match: (line: string) => T | undefined,
  log: (line: string) => void,
  seconds = 60,
): Promise<T> {
  const last: string[] = [];
  const found = new Promise<T>((resolve) => {
    const onLine = (line: string) => {
      log(line);
      if (last.push(line) > 15) last.shift();
      const hit = match(line);
      if (hit !== undefined) resolve(hit);
    };
    eachLine(process.stdout, onLine);
    eachLine(process.stderr, onLine);
  });
  const silence = new AbortController();
  const late = systemClock.sleep(seconds * 1_000, silence.signal).then(
    () => `was not ready within ${seconds} s`,
    () => '',
  );
  const ended = process.exited.then(({ code }) => `ended with ${code}`);
  try {
    const first = await Promise.race([found.then((value) => ({ value })), late, ended]);
    if (typeof first === 'object') return first.value;
    await process.stop();
    throw new Error(`${first}:\n${last.join('\n')}`);
  } finally {
    silence.abort();
  }
}
