import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '#core/kernel/time.ts';
import { holdInstance } from './instance-lock.ts';
import { type Journal, type JournalCommand, openJournal } from './journal.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'bcd-journal-'));
  path = join(directory, 'state', 'journal.db');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const open = (limits = {}) => openJournal(path, { clock: systemClock, limits });
const command = (seq: number, kind = 'inventory.refresh'): JournalCommand => ({
  seq,
  id: `cmd-${seq}`,
  kind,
  lane: 'control',
  payload: { seq },
});

test('a command is accepted once, run once and answered from the journal after that', () => {
  const journal = open();
  expect(journal.accept(command(1))).toEqual({ kind: 'accepted' });
  expect(journal.accept(command(1))).toEqual({ kind: 'duplicate', state: 'accepted' });
  expect(journal.begin(1)).toBe(true);
  expect(journal.begin(1)).toBe(false);
  expect(journal.finish(1, { ok: true })).toBe(true);
  expect(journal.finish(1, { ok: false })).toBe(false);
  expect(journal.accept(command(1))).toEqual({ kind: 'duplicate', state: 'done', result: { ok: true } });
  expect(journal.accept({ ...command(1), id: 'other' })).toEqual({ kind: 'refused', reason: 'conflict' });
  journal.close();
});

test('the same file keeps its id and what waits; a lost or damaged file starts a new one', () => {
  const first = open();
  first.accept(command(1));
  first.begin(1);
  first.finish(1, 'done');
  first.recordEvent({ what: 'started' });
  first.remember('spec', { generation: 3 });
  first.close();
  const second = open();
  expect(second.id).toBe(first.id);
  expect(second.unacknowledged(10).map((e) => [e.kind, e.seq])).toEqual([
    ['result', 1],
    ['event', undefined],
  ]);
  expect(second.recall('spec')).toEqual({ generation: 3 });
  second.acknowledge(2);
  expect(second.unacknowledged(10)).toEqual([]);
  second.close();

  for (const suffix of ['', '-wal', '-shm']) rmSync(path + suffix, { force: true });
  const third = open();
  expect(third.id).not.toBe(first.id);
  third.close();
  writeFileSync(path, 'no database'.repeat(1000));
  const fourth = open();
  expect(fourth.id).not.toBe(third.id);
  fourth.close();
  expect(statSync(`${path}.unreadable`).size).toBeGreaterThan(0);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test('bounds: events drop oldest first and are counted, results make new commands wait', () => {
  const journal = open({ events: 3, results: 2, openCommands: 2, doneCommands: 1, bodyLength: 100 });
  for (let i = 1; i <= 5; i++) journal.recordEvent({ i });
  expect(journal.unacknowledged(10).map((e) => e.body)).toEqual([{ i: 3 }, { i: 4 }, { i: 5 }]);
  expect(journal.droppedEvents()).toBe(2);
  expect(journal.accept(command(1))).toEqual({ kind: 'accepted' });
  expect(journal.accept(command(2))).toEqual({ kind: 'accepted' });
  expect(journal.accept(command(3))).toEqual({ kind: 'refused', reason: 'full' });
  for (const seq of [1, 2]) {
    journal.begin(seq);
    journal.finish(seq, null);
  }
  expect(journal.accept(command(3))).toEqual({ kind: 'refused', reason: 'full' });
  journal.acknowledge(journal.unacknowledged(100).at(-1)!.n);
  // One done command is remembered, the older one is known to be old.
  expect(journal.accept(command(2))).toMatchObject({ kind: 'duplicate', state: 'done' });
  expect(journal.accept(command(1))).toEqual({ kind: 'refused', reason: 'forgotten' });
  expect(journal.accept(command(3))).toEqual({ kind: 'accepted' });
  expect(() => journal.recordEvent('x'.repeat(200))).toThrow(/larger/);
  journal.close();
});

test('kill -9 in the middle of a command: what was promised is there, the command is interrupted, not repeated', async () => {
  const script = join(directory, 'victim.ts');
  writeFileSync(
    script,
    `import { openJournal } from ${JSON.stringify(new URL('./journal.ts', import.meta.url).href)};
     import { systemClock } from ${JSON.stringify(new URL('../../core/kernel/time.ts', import.meta.url).href)};
     const journal = openJournal(${JSON.stringify(path)}, { clock: systemClock });
     for (const seq of [1, 2, 3]) journal.accept({ seq, id: 'cmd-' + seq, kind: 'inventory.refresh', lane: 'control', payload: null });
     journal.begin(1); journal.finish(1, 'one');
     journal.begin(2);
     process.send(journal.id);
     setInterval(() => undefined, 1000);`,
  );
  const child = fork(script, { execPath: process.execPath, execArgv: [] });
  const [id] = (await once(child, 'message')) as [string];
  child.kill('SIGKILL');
  await once(child, 'exit');
  const journal = open();
  expect(journal.id).toBe(id);
  expect(journal.interrupted).toEqual([2]);
  expect(journal.begin(2)).toBe(false);
  expect(journal.runnable().map((c) => c.seq)).toEqual([3]);
  expect(journal.unacknowledged(10).map((e) => e.body)).toEqual(['one', { outcome: 'interrupted' }]);
  journal.close();
});

test('one daemon per state directory, and the lock goes with its holder', () => {
  const lock = holdInstance(directory);
  expect(() => holdInstance(directory)).toThrow(/another bcd/);
  lock.release();
  holdInstance(directory).release();
});

test('whatever the order of calls and restarts: at most one begin a command, every result once in the outbox', () => {
  const step = fc.record({
    op: fc.constantFrom('accept', 'begin', 'finish', 'restart', 'acknowledge'),
    seq: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
      const home = mkdtempSync(join(directory, 'run-'));
      const file = join(home, 'journal.db');
      const reopen = () => openJournal(file, { clock: systemClock });
      let journal: Journal = reopen();
      const begun = new Map<number, number>();
      const seen: number[] = [];
      const drain = () => {
        const entries = journal.unacknowledged(100);
        for (const e of entries) seen.push(e.seq!);
        if (entries.length > 0) journal.acknowledge(entries.at(-1)!.n);
      };
      for (const { op, seq } of steps) {
        if (op === 'accept') journal.accept(command(seq));
        if (op === 'begin' && journal.begin(seq)) begun.set(seq, (begun.get(seq) ?? 0) + 1);
        if (op === 'finish' && journal.find(seq)?.state === 'running') journal.finish(seq, seq);
        if (op === 'acknowledge') drain();
        if (op === 'restart') {
          journal.close();
          journal = reopen();
        }
      }
      drain();
      journal.close();
      expect(Math.max(0, ...begun.values())).toBeLessThanOrEqual(1);
      expect(new Set(seen).size).toBe(seen.length);
    }),
    { numRuns: 30 },
  );
});
