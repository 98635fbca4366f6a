/** The command line as a process, before the Worker in workerd: answers, exit codes, and what it says of mistakes. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ERRORS } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import { type ProductEdge, productEdge } from '#kit/product-edge.ts';

const BIN = fileURLToPath(new URL('../../cli/bin.js', import.meta.url));
let p: ProductEdge;
beforeAll(async () => {
  p = await productEdge();
});
afterAll(() => p?.close());

function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const env = { ...process.env, BETTER_COMPUTE_URL: p.edge.url, BETTER_COMPUTE_TOKEN: p.tenant.token };
  return new Promise((done) => {
    execFile(process.execPath, [BIN, ...args], { env }, (e, out, err) =>
      done({ code: e === null ? 0 : Number(e.code), out, err }),
    );
  });
}
const wish = (count: string) => [
  'reservations',
  'create',
  '--pool-id',
  p.fleet.poolId,
  '--devices',
  `class=gpu,count=${count}`,
  '--duration-seconds',
  '600',
];

test('answers for people, for programs, and ids alone', async () => {
  expect((await run('pools', 'list')).out).toMatch(/^ID +NAME/);
  expect(JSON.parse((await run('--json', 'pools', 'list')).out).items[0].id).toBe(p.fleet.poolId);
  expect((await run('--ids', 'pools', 'list')).out).toBe(`${p.fleet.poolId}\n`);
});

test('reserves, explains and gives back', async () => {
  const made = await run('--ids', ...wish('2'));
  expect(made.code).toBe(0);
  const id = made.out.trim();
  expect(JSON.parse((await run('--json', 'reservations', 'explain', id)).out)).toMatchObject({ id });
  expect(JSON.parse((await run('--json', 'reservations', 'release', id)).out)).toMatchObject({
    id,
    state: 'releasing',
  });
});

test('ends with the exit code of the registry, and says what to do', async () => {
  const full = await run(...wish('9'));
  expect([full.code, full.out]).toEqual([ERRORS.CAPACITY_UNAVAILABLE.exit, '']);
  expect(full.err).toMatch(/has 8 gpu, wanted 9[\s\S]*what to do/);
  const gone = await run('--json', 'reservations', 'get', newId('reservation'));
  expect([gone.code, JSON.parse(gone.err).code]).toEqual([ERRORS.NOT_FOUND.exit, 'NOT_FOUND']);
  expect((await run('--token', 'nonsense', 'pools', 'list')).code).toBe(ERRORS.UNAUTHENTICATED.exit);
});

test('names the option that is wrong', async () => {
  const unknown = await run('pools', 'list', '--colour', 'red');
  expect([unknown.code, unknown.err]).toEqual([2, expect.stringContaining('--colour')]);
  const missing = await run('reservations', 'create');
  expect([missing.code, missing.err]).toEqual([2, expect.stringContaining('--pool-id')]);
  const wrong = await run(...wish('many'));
  expect([wrong.code, wrong.err]).toEqual([2, expect.stringContaining('devices[0].count')]);
});
