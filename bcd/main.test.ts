import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseInventory } from '#core/inventory/inventory.ts';
import { systemClock } from '#core/kernel/time.ts';
import { openJournal } from './journal/journal.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'bcd-main-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const bin = new URL('./bin.ts', import.meta.url).pathname;
const bcd = (...args: string[]) =>
  new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', bin, ...args],
      { timeout: 60_000 },
      (error, stdout, stderr) => resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });

test('bcd inventory reads this machine, whatever it lacks', async () => {
  const { code, stdout } = await bcd('inventory', '--json');
  expect(code).toBe(0);
  const document = JSON.parse(stdout) as { hardwareKey: { trusted: boolean }; conditions: { type: string }[] };
  const { sections } = parseInventory(document);
  expect(sections.cpu.threads).toBeGreaterThan(0);
  expect(sections.memory.totalBytes).toBeGreaterThan(0);
  // A machine whose identity cannot be told says so, and no other does.
  expect(document.conditions.some((c) => c.type === 'HardwareKeyUntrusted')).toBe(!document.hardwareKey.trusted);
});

test('bcd status before and after there is a journal', async () => {
  const args = ['status', '--json', '--state-dir', directory, '--cdi-dir', join(directory, 'cdi')];
  expect(JSON.parse((await bcd(...args)).stdout)).toEqual({ version: '0.1.0-dev', joined: false, cdi: [] });
  // While the daemon holds it open.
  const journal = openJournal(join(directory, 'journal.db'), { clock: systemClock });
  journal.recordEvent({ what: 'started' });
  expect(JSON.parse((await bcd(...args)).stdout)).toMatchObject({
    journal: { id: journal.id, open: 0, unacknowledged: 1 },
  });
  journal.close();
});

test('usage errors are 2 and say what is possible; the version is one line', async () => {
  expect(await bcd('fly')).toMatchObject({ code: 2 });
  expect((await bcd('fly')).stderr).toMatch(/unknown command/);
  expect(await bcd('--version')).toMatchObject({ code: 0, stdout: '0.1.0-dev\n' });
});
