/** Log lines of the Worker: one JSON object a line, which the platform's log pipeline takes as it is. */
import type { Log } from '#core/kernel/log.ts';

export function consoleLog(component: string): Log {
  const line = (level: string, fields: object, message: string) =>
    JSON.stringify({ level, component, message, ...fields });
  return {
    debug: () => {},
    info: (fields, message) => console.log(line('info', fields, message)),
    warn: (fields, message) => console.warn(line('warn', fields, message)),
    error: (fields, message) => console.error(line('error', fields, message)),
  };
}
