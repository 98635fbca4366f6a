import { expect, test } from 'vitest';
import type { Clock } from '#core/kernel/time.ts';
import { Semaphore } from './semaphore.ts';

/** Time that moves when told to. */
function handClock() {
  let now = 0;
  const sleepers: { at: number; wake: () => void }[] = [];
  const clock: Clock = {
    now: () => now,
    sleep: (ms) => new Promise((wake) => sleepers.push({ at: now + ms, wake })),
  };
  const settle = async () => {
    for (let i = 0; i < 20; i++) await Promise.resolve();
  };
  const pass = async (ms: number) => {
    const end = now + ms;
    for (;;) {
      await settle();
      const due = sleepers.filter((s) => s.at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      sleepers.splice(sleepers.indexOf(due), 1);
      now = due.at;
      due.wake();
    }
    now = end;
    await settle();
  };
  return { clock, pass, settle };
}

const LIMITS = { atOnce: 2, waitingMax: 2, waitMs: 1_000, holdMs: 10_000 };

/** A piece of work that says when it began and ends when told to. */
function piece(name: string, began: string[]) {
  let end = () => {};
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  const work = async () => {
    began.push(name);
    await done;
    return name;
  };
  return { work, end };
}

test('so many at once, the others in the order they came', async () => {
  const { clock, settle } = handClock();
  const s = new Semaphore({ ...LIMITS, clock });
  const began: string[] = [];
  const pieces = ['a', 'b', 'c', 'd'].map((n) => piece(n, began));
  const runs = pieces.map((p) => s.run(p.work));
  await settle();
  expect(began).toEqual(['a', 'b']);
  pieces[1]!.end();
  await settle();
  expect(began).toEqual(['a', 'b', 'c']);
  for (const p of pieces) p.end();
  expect(await Promise.all(runs)).toEqual(['a', 'b', 'c', 'd']);
});

test('too many waiting, or waiting too long, is refused, and takes no place', async () => {
  const { clock, pass, settle } = handClock();
  const s = new Semaphore({ ...LIMITS, clock });
  const began: string[] = [];
  const pieces = ['a', 'b', 'c', 'd', 'e'].map((n) => piece(n, began));
  const runs = pieces.map((p) => s.run(p.work));
  for (const r of runs) r.catch(() => {});
  await expect(runs[4]).rejects.toMatchObject({ code: 'UNAVAILABLE', details: { retryAfterSeconds: 1 } });
  await pass(1_200);
  await expect(runs[2]).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await expect(runs[3]).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  pieces[0]!.end();
  const late = piece('f', began);
  const run = s.run(late.work);
  await settle();
  expect(began).toEqual(['a', 'b', 'f']);
  late.end();
  expect(await run).toBe('f');
});

test('the place of one that was cut off is free again after its time', async () => {
  const { clock, pass } = handClock();
  const s = new Semaphore({ ...LIMITS, clock });
  const never = () => new Promise<never>(() => {});
  void s.run(never);
  void s.run(never);
  await pass(9_500);
  const began: string[] = [];
  const p = piece('a', began);
  p.end();
  const run = s.run(p.work);
  await pass(400);
  expect(began).toEqual([]);
  await pass(200);
  expect(await run).toBe('a');
});
