import { expect, test } from 'vitest';
import { count, summary } from './main.ts';

const report = (passed: number, files: { status: string; assertionResults: { status: string }[] }[], pending = 0) => ({
  numPassedTests: passed,
  numPendingTests: pending,
  numTodoTests: 0,
  testResults: files,
});

test('counts tests that failed, and files that never ran as one each', () => {
  const files = [
    { status: 'failed', assertionResults: [{ status: 'passed' }, { status: 'failed' }, { status: 'failed' }] },
    { status: 'failed', assertionResults: [] },
  ];
  expect(summary(count(report(1, files), 1))).toBe('1 passed, 3 failed');
});

test('a run that failed outside every test is a failure', () => {
  const files = [{ status: 'passed', assertionResults: [{ status: 'passed' }] }];
  expect(summary(count(report(1, files, 2), 1))).toBe('1 passed, 1 failed, 2 skipped');
  expect(summary(count(report(1, files), 0))).toBe('1 passed, 0 failed');
});

test('a run without a report has failed', () => {
  expect(summary(count(undefined, 130))).toBe('0 passed, 1 failed');
});
