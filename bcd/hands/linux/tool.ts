/**
 * Runs a vendor's tool: no shell, `LC_ALL=C` (labels in English, decimal points), a deadline after which it is killed,
 * and a bound on what it may print. It never throws: how a tool failed is part of the answer.
 */
import { execFile } from 'node:child_process';

export interface ToolAnswer {
  /** `missing`: there is no such program. `timeout` and `flood`: killed at the deadline or at the bound. */
  readonly outcome: 'exited' | 'missing' | 'timeout' | 'flood' | 'error';
  readonly exitCode?: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ToolOptions {
  readonly deadlineMs: number;
  readonly outputBytesMax?: number;
  readonly signal?: AbortSignal;
}

export type RunTool = (program: string, args: readonly string[], options: ToolOptions) => Promise<ToolAnswer>;

/** Nothing of the caller's locale, and nothing else that it did not mean to pass on. */
export function toolEnvironment(from: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return {
    PATH: from['PATH'] ?? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    LC_ALL: 'C',
    LANG: 'C',
    TZ: 'UTC',
  };
}

export const runTool: RunTool = (program, args, options) =>
  new Promise((resolve) => {
    execFile(
      program,
      [...args],
      {
        env: toolEnvironment(process.env),
        timeout: options.deadlineMs,
        killSignal: 'SIGKILL',
        maxBuffer: options.outputBytesMax ?? 16 * 1024 * 1024,
        encoding: 'utf8',
        windowsHide: true,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      },
      (error, stdout, stderr) => {
        const said = { stdout, stderr };
        if (error === null) return resolve({ outcome: 'exited', exitCode: 0, ...said });
        const code = error.code as unknown;
        if (code === 'ENOENT' || code === 'EACCES') return resolve({ outcome: 'missing', ...said });
        if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return resolve({ outcome: 'flood', ...said });
        if (typeof code === 'number') return resolve({ outcome: 'exited', exitCode: code, ...said });
        resolve({ outcome: error.killed === true ? 'timeout' : 'error', ...said });
      },
    );
  });

/** How it failed, in one line, with the first thing that it said. */
export function failureText(program: string, answer: ToolAnswer): string {
  const line = (answer.stdout || answer.stderr).split('\n').find((l) => l.trim() !== '') ?? '';
  const said = line === '' ? '' : `: ${line.trim().slice(0, 200)}`;
  if (answer.outcome === 'exited') return `${program} exited with ${answer.exitCode}${said}`;
  if (answer.outcome === 'timeout') return `${program} did not answer before its deadline`;
  if (answer.outcome === 'flood') return `${program} printed more than it may`;
  return answer.outcome === 'missing' ? `${program} is not installed` : `${program} could not be run${said}`;
}
