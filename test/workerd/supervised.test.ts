/** Postgres and the edge under the supervisor: whichever is killed, the same addresses work again. */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { edgeChild, postgresChild } from '#cli/dev/children.ts';
import { freePort } from '#cli/dev/ports.ts';
import { Supervisor } from '#cli/dev/supervisor.ts';
import { isAlive } from '#cli/dev/workerd-process.ts';

const entry = fileURLToPath(new URL('./fixtures/probe-worker.ts', import.meta.url));
const stateDir = mkdtempSync(join(tmpdir(), 'supervised-'));
const log: string[] = [];
const supervisor = new Supervisor(stateDir, (name, line) => log.push(`${name}: ${line}`));
let port: number;

beforeAll(async () => {
  let url = '';
  await supervisor.add(
    postgresChild(stateDir, await freePort(), (u) => {
      url = u;
    }),
  );
  port = await freePort();
  const vars = { DATABASE_URL: url, CA_CERT_PEM: '', CA_KEY_PEM: '', TRUST_DOMAIN: 't', GATEWAY_TOKEN: 't' };
  await supervisor.add(edgeChild(stateDir, port, vars, entry));
});
afterAll(async () => {
  await supervisor.stop();
  const data = realpathSync(join(stateDir, 'postgres'));
  rmSync(data === join(realpathSync(stateDir), 'postgres') ? data : dirname(data), { recursive: true, force: true });
  rmSync(stateDir, { recursive: true, force: true });
});

async function answers(): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/`)).ok;
  } catch {
    return false;
  }
}

async function untilAnswers(): Promise<void> {
  for (let i = 0; i < 400; i++) {
    if (await answers()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`no answer within 20 s:\n${log.slice(-20).join('\n')}`);
}

test('all are named, and the edge answers from the database', async () => {
  expect(Object.keys(supervisor.pids())).toEqual(['postgres', 'edge', 'workerd']);
  expect(await answers()).toBe(true);
});

test.each(['workerd', 'edge', 'postgres'])('%s killed: it comes back at the same address', async (name) => {
  const before = supervisor.pids();
  process.kill(before[name]!, 'SIGKILL');
  while (supervisor.pids()[name] === before[name]) await new Promise((resolve) => setTimeout(resolve, 20));
  await untilAnswers();
  expect(supervisor.pids()[name]).not.toBe(before[name]);
  if (name !== 'postgres') expect(isAlive(before.workerd!)).toBe(false);
});

test('stopped: nothing is left', async () => {
  const pids = Object.values(supervisor.pids());
  await supervisor.stop();
  expect(pids.filter(isAlive)).toEqual([]);
});
