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
  /** The child's own pid (not the shell's). Rejects when it could not be started. */
  readonly pid: Promise<number>;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the child is gone, with 128 + n after signal n, null when nobody can say. Never rejects. */
  readonly exited: Promise<{ code: number | null }>;
  /** Closes the pipe and waits. */
  stop(): Promise<void>;
}

// fd 3 keeps the pipe, since a background job of a non-interactive shell gets /dev/null as its stdin; fd 4 tells us
// the child's pid and at last its exit code. `read` is a builtin: no process is left holding the pipe when the child
// ends by itself. The last line kills the shell too, with whatever the child had started and left.
const SHELL = `
exec 3<&0
signal=$1 tenths=$2 remove=$3
shift 3
"$@" 3<&- 4>&- </dev/null &
p=$!
(
  read -r _ <&3
  kill -"$signal" "$p"
  i=0
  while [ "$i" -lt "$tenths" ] && kill -0 "$p"; do sleep 0.1; i=$((i + 1)); done
  kill -KILL "$p"
) >/dev/null 2>&1 4>&- &
exec >/dev/null 2>&1
trap '' PIPE TERM INT HUP
echo "$p" >&4
wait "$p"
echo "$?" >&4
if [ -n "$remove" ]; then rm -rf -- "$remove"; fi
kill -KILL 0
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

  const [pid, code] = numbers(child.stdio[4] as Readable);
  const exited = new Promise<{ code: number | null }>((resolve) => {
    const gone = async () => {
      child.stdin?.destroy();
      killGroup(child.pid);
      resolve({ code: await code });
    };
    child.once('error', gone);
    child.once('exit', gone);
  });

  const started = pid.then((p) => p ?? Promise.reject(new Error(`${o.command} could not be started`)));
  started.catch(() => {});
  return {
    pid: started,
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

/** The first and the second number that are written there; null for one that never comes. */
function numbers(from: Readable): [Promise<number | null>, Promise<number | null>] {
  let text = '';
  const told: ((n: number | null) => void)[] = [];
  const promised = [0, 1].map(() => new Promise<number | null>((resolve) => told.push(resolve)));
  from.setEncoding('utf8');
  from.on('data', (d: string) => {
    text += d;
    text
      .split('\n')
      .slice(0, -1)
      .forEach((line, i) => void told[i]?.(Number(line)));
  });
  const end = () => told.forEach((tell) => void tell(null));
  from.once('error', end);
  from.once('close', end);
  return promised as [Promise<number | null>, Promise<number | null>];
}
