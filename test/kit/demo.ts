/** Runs `npm run demo` as a user would and reads its last line. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('../../tools/demo/main.ts', import.meta.url));

export interface DemoRun {
  readonly code: number | null;
  readonly result: Readonly<Record<string, unknown>>;
  /** Everything that it printed. */
  readonly output: string;
}

export async function runDemo(...args: string[]): Promise<DemoRun> {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', SCRIPT, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (d: string) => {
    out += d;
  });
  child.stderr.setEncoding('utf8').on('data', (d: string) => {
    err += d;
  });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  const last = out.trimEnd().split('\n').at(-1) ?? '';
  return { code, result: JSON.parse(last) as Record<string, unknown>, output: out + err };
}
