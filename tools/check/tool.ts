/** Runs a program that a gate relies on, with a deadline, and gives back all that it said. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';

export interface ToolRun {
  readonly code: number;
  readonly output: string;
}

const DEADLINE_MS = 300_000;

export function runTool(
  root: string,
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<ToolRun> {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0', ...env },
      timeout: DEADLINE_MS,
      killSignal: 'SIGKILL',
    });
    let output = '';
    const hear = (chunk: Buffer) => {
      output += chunk.toString();
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('error', (error) => resolve({ code: 127, output: `${output}${error.message}` }));
    child.on('close', (code, signal) =>
      resolve({ code: code ?? 1, output: signal === null ? output : `${output}\nended by ${signal}` }),
    );
  });
}

/** A program of the pinned dependencies, run by the Node that runs the gates. */
export const runNode = (
  root: string,
  script: string,
  args: readonly string[],
  env?: Readonly<Record<string, string>>,
) => runTool(root, process.execPath, ['--disable-warning=ExperimentalWarning', join(root, script), ...args], env);
