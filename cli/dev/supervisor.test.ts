/** Real processes: what the supervisor and the guard promise about starting, dying and stopping. */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { spawnGuarded } from './guarded-process.ts';
import { eachLine, untilLine } from './process-output.ts';
import { lockStateDir } from './state-lock.ts';
import { type ChildSpec, Supervisor } from './supervisor.ts';
import { isAlive } from './workerd-process.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'supervisor-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const node = (program: string) => spawnGuarded({ command: process.execPath, args: ['-e', program], graceSeconds: 1 });
const RUN = `console.log('up ' + process.pid); setInterval(() => {}, 1000);`;

function child(name: string, program: string): ChildSpec {
  return {
    name,
    start: async (log) => {
      const started = node(program);
      await untilLine(started, (line) => (line.startsWith('up ') ? line : undefined), log);
      return { process: started };
    },
  };
}

async function until(what: () => boolean): Promise<void> {
  for (let i = 0; i < 200; i++) {
    if (what()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('did not happen within 10 s');
}
const written = () => JSON.parse(readFileSync(join(dir, 'processes.json'), 'utf8')) as Record<string, number>;

test('starts a dead child again, and keeps processes.json true', async () => {
  const log: string[] = [];
  const supervisor = new Supervisor(dir, (name, line) => log.push(`${name}: ${line}`));
  await supervisor.add(child('a', RUN));
  await supervisor.add(child('b', RUN));
  const before = written();
  expect(Object.keys(before)).toEqual(['a', 'b']);
  process.kill(before.a!, 'SIGKILL');
  await until(() => supervisor.pids().a !== undefined && supervisor.pids().a !== before.a);
  expect(written()).toEqual(supervisor.pids());
  expect(written().b).toBe(before.b);
  expect(log).toContain('a: ended (137); starting it again');
  await supervisor.stop();
  for (const pid of [...Object.values(before), supervisor.pids().a ?? 0]) expect(pid > 0 && isAlive(pid)).toBe(false);
  expect(existsSync(join(dir, 'processes.json'))).toBe(false);
});

test('stops in reverse order', async () => {
  const log: string[] = [];
  const supervisor = new Supervisor(dir, (name, line) => log.push(`${name}: ${line}`));
  const polite = `process.on('SIGTERM', () => { console.log('bye'); process.exit(0); }); ${RUN}`;
  for (const name of ['a', 'b', 'c']) await supervisor.add(child(name, polite));
  await supervisor.stop();
  await until(() => log.filter((l) => l.endsWith('bye')).length === 3);
  expect(log.filter((l) => l.endsWith('bye'))).toEqual(['c: bye', 'b: bye', 'a: bye']);
});

test('a first start that fails is told with the last words of the child', async () => {
  const supervisor = new Supervisor(dir, () => {});
  const broken = child('broken', `console.error('no such thing'); process.exit(3);`);
  await expect(supervisor.add(broken)).rejects.toThrow(/ended with 3:\nno such thing/);
  await supervisor.stop();
});

test('a child that will not stop is killed, and so is what it started', async () => {
  const deaf = node(`
    process.on('SIGTERM', () => {});
    const inner = require('node:child_process').spawn('sleep', ['1000']);
    console.log('inner ' + inner.pid); setInterval(() => {}, 1000);`);
  const inner = await untilLine(
    deaf,
    (line) => (line.startsWith('inner ') ? Number(line.slice(6)) : undefined),
    () => {},
  );
  const pid = await deaf.pid;
  await deaf.stop();
  await until(() => !isAlive(pid) && !isAlive(inner));
});

test('nothing survives the SIGKILL of the supervising process', async () => {
  const program = `
    import { spawnGuarded } from ${JSON.stringify(new URL('./guarded-process.ts', import.meta.url).href)};
    const inner = "const c = require('node:child_process').spawn('sleep', ['1000']); console.log('pids ' + process.pid + ' ' + c.pid); setInterval(() => {}, 1000)";
    const p = spawnGuarded({ command: process.execPath, args: ['-e', inner], graceSeconds: 1 });
    p.stdout.pipe(process.stdout);`;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const pids = await new Promise<number[]>((resolve) =>
    eachLine(parent.stdout, (line) => line.startsWith('pids ') && resolve(line.split(' ').slice(1).map(Number))),
  );
  expect(pids.every(isAlive)).toBe(true);
  parent.kill('SIGKILL');
  await until(() => !pids.some(isAlive));
});

test('a command that does not exist ends with 127', async () => {
  const none = spawnGuarded({ command: '/does/not/exist', args: [] });
  expect((await none.exited).code).toBe(127);
});

test('a state folder serves one control plane at a time', () => {
  const lock = lockStateDir(dir);
  expect(() => lockStateDir(dir)).toThrow(/in use by another control plane/);
  lock.release();
  lockStateDir(dir).release();
});
