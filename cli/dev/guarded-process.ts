/**
 * Children that never outlive this process. Each runs under a small shell that holds a pipe from us: when the pipe
 * closes, because we closed it or because we died of whatever cause, the shell asks the child to stop, waits a little
 * and then kills its whole process group. The group is its own, so Ctrl-C in the terminal reaches only us and the
 * order of stopping stays ours.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';

export interface GuardedOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  readonly uid?: number;
  readonly gid?: number;
  /** Asks the child to stop. */
  readonly stopSignal?: 'TERM' | 'INT';
  /** Seconds between asking and killing. */
  readonly graceSeconds?: number;
  /** A folder that the shell deletes once the child is gone. */
  readonly removeAfter?: string;
}

export interface GuardedProcess {
  /** The child's own pid (not the shell's). */
  readonly pid: Promise<number>;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the child is gone. Never rejects. */
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** Closes the pipe and waits. */
  stop(): Promise<void>;
}

// fd 3 keeps the pipe, since a background job of a non-interactive shell gets /dev/null as its stdin; fd 4 tells us
// the child's pid. `read` is a builtin: no process is left holding the pipe when the child ends by itself.
const SHELL = `
exec 3<&0
signal=$1 tenths=$2 remove=$3
shift 3
"$@" 3<&- 4>&- </dev/null &
p=$!
echo "$p" >&4
exec 4>&-
(
  read -r _ <&3
  kill -"$signal" "$p" 2>/dev/null
  i=0
  while [ "$i" -lt "$tenths" ] && kill -0 "$p" 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
  kill -KILL "$p" 2>/dev/null
) >/dev/null 2>&1 &
w=$!
wait "$p"
r=$?
kill -KILL "$w" 2>/dev/null
if [ -n "$remove" ]; then rm -rf -- "$remove"; fi
trap '' TERM
kill -TERM 0 2>/dev/null
exit "$r"
`;

export function spawnGuarded(o: GuardedOptions): GuardedProcess {
  const child: ChildProcess = spawn(
    '/bin/sh',
    [
      '-c',
      SHELL,
      'guard',
      o.stopSignal ?? 'TERM',
      String(Math.round((o.graceSeconds ?? 5) * 10)),
      o.removeAfter ?? '',
      o.command,
      ...o.args,
    ],
    {
      stdio: ['pipe', 'pipe', 'pipe', 'ignore', 'pipe'],
      detached: true,
      ...(o.env === undefined ? {} : { env: o.env as NodeJS.ProcessEnv }),
      ...(o.cwd === undefined ? {} : { cwd: o.cwd }),
      ...(o.uid === undefined ? {} : { uid: o.uid, gid: o.gid ?? o.uid }),
    },
  );
  child.stdin?.on('error', () => {});

  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once('error', () => resolve({ code: 127, signal: null }));
    child.once('exit', (code, signal) => {
      child.stdin?.destroy();
      killGroup(child.pid);
      resolve({ code, signal });
    });
  });
  const pid = firstLine(child.stdio[4] as Readable).then(Number);
  pid.catch(() => {});

  return {
    pid,
    stdout: child.stdout!,
    stderr: child.stderr!,
    exited,
    async stop() {
      child.stdin?.destroy();
      await exited;
    },
  };
}

/** What the child left behind in its group, such as a server that it had started itself. */
function killGroup(leader: number | undefined): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // Nobody left.
  }
}

function firstLine(from: Readable): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    from.setEncoding('utf8');
    from.on('data', (d: string) => {
      text += d;
      if (text.includes('\n')) resolve(text.trim());
    });
    from.once('error', reject);
    from.once('close', () => reject(new Error('the process did not start')));
  });
}
