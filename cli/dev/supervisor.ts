/**
 * Keeps the processes of a local control plane running: starts them in order, starts a dead one again after a pause
 * that grows, stops them in reverse order. Each is a guarded process, so all of them go when this one goes.
 * `processes.json` in the state folder says which pid has which name.
 */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '#core/kernel/time.ts';
import type { GuardedProcess } from './guarded-process.ts';

export interface Started {
  readonly process: GuardedProcess;
  /** Further processes that this one brought along, by name. */
  readonly pids?: Readonly<Record<string, number>>;
}

export interface ChildSpec {
  readonly name: string;
  /** Starts it and resolves once it is ready; called again after each death. Lines of its output go to `log`. */
  start(log: (line: string) => void): Promise<Started>;
}

export type Log = (name: string, line: string) => void;

const PAUSE_MIN_MS = 200;
const PAUSE_MAX_MS = 10_000;
/** One that lived so long is started again without a pause that grew. */
const STEADY_MS = 30_000;

export class Supervisor {
  readonly #stateDir: string;
  readonly #log: Log;
  readonly #children: { name: string; current: Started; loop: Promise<void> }[] = [];
  readonly #pids = new Map<string, number>();
  readonly #stopping = new AbortController();
  #stopped: Promise<void> | undefined;

  constructor(stateDir: string, log: Log) {
    this.#stateDir = stateDir;
    this.#log = log;
  }

  /** Resolves when it is ready for the first time; a first start that fails is the caller's to handle. */
  async add(spec: ChildSpec): Promise<Started> {
    const started = await this.#start(spec);
    const child = { name: spec.name, current: started, loop: Promise.resolve() };
    this.#children.push(child);
    child.loop = this.#keep(spec, child);
    return started;
  }

  /** Name -> pid of everything that runs. */
  pids(): Record<string, number> {
    return Object.fromEntries(this.#pids);
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

  async #stopAll(): Promise<void> {
    this.#stopping.abort();
    for (const child of [...this.#children].reverse()) {
      await child.current.process.stop();
      await child.loop;
    }
    rmSync(this.#file(), { force: true });
  }

  async #start(spec: ChildSpec): Promise<Started> {
    const started = await spec.start((line) => this.#log(spec.name, line));
    this.#pids.set(spec.name, await started.process.pid);
    for (const [name, pid] of Object.entries(started.pids ?? {})) this.#pids.set(name, pid);
    this.#write();
    return started;
  }

  async #keep(spec: ChildSpec, child: { current: Started }): Promise<void> {
    let pause = PAUSE_MIN_MS;
    while (!this.#stopping.signal.aborted) {
      const since = systemClock.now();
      const { code } = await child.current.process.exited;
      for (const name of [spec.name, ...Object.keys(child.current.pids ?? {})]) this.#pids.delete(name);
      if (this.#stopping.signal.aborted) return;
      this.#write();
      this.#log(spec.name, `ended (${code}); starting it again`);
      if (systemClock.now() - since > STEADY_MS) pause = PAUSE_MIN_MS;
      for (;;) {
        try {
          await systemClock.sleep(pause, this.#stopping.signal);
          pause = Math.min(pause * 2, PAUSE_MAX_MS);
          child.current = await this.#start(spec);
          break;
        } catch (e) {
          if (this.#stopping.signal.aborted) return;
          this.#log(spec.name, `did not start: ${(e as Error).message}`);
        }
      }
      // It became ready while everything was being stopped.
      if (this.#stopping.signal.aborted) await child.current.process.stop();
    }
  }

  #file(): string {
    return join(this.#stateDir, 'processes.json');
  }

  #write(): void {
    const aside = `${this.#file()}.new`;
    writeFileSync(aside, `${JSON.stringify(this.pids(), null, 2)}\n`, { mode: 0o600 });
    renameSync(aside, this.#file());
  }
}
