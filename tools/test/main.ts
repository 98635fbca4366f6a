/**
 * `npm test`: runs the test projects and ends with one line, `N passed, N failed[, N skipped]`, and the exit code that
 * goes with it. A run that ran nothing has failed. Further arguments go to the test runner: a file, `-t name`,
 * `--project e2e`.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

interface Report {
  readonly numPassedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly status: string;
    readonly assertionResults: readonly { status: string }[];
  }[];
}

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** A file that could not be loaded counts as one failure; so does a run that failed outside every test. */
export function count(report: Report | undefined, exitCode: number): Counts {
  if (report === undefined) return { passed: 0, failed: 1, skipped: 0 };
  let failed = 0;
  for (const file of report.testResults) {
    const inTests = file.assertionResults.filter((a) => a.status === 'failed').length;
    failed += inTests === 0 && file.status === 'failed' ? 1 : inTests;
  }
  if (exitCode !== 0 && failed === 0) failed = 1;
  return { passed: report.numPassedTests, failed, skipped: report.numPendingTests + report.numTodoTests };
}

export function summary(c: Counts): string {
  return `${c.passed} passed, ${c.failed} failed${c.skipped === 0 ? '' : `, ${c.skipped} skipped`}`;
}

async function main(args: readonly string[]): Promise<number> {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), 'better-compute-tests-'));
  const file = join(folder, 'report.json');
  const projects = args.includes('--project') ? [] : ['--project', 'unit', '--project', 'integration'];
  try {
    const runner = spawn(
      process.execPath,
      [
        join(root, 'node_modules/vitest/vitest.mjs'),
        'run',
        ...projects,
        '--reporter=default',
        '--reporter=json',
        `--outputFile.json=${file}`,
        ...args,
      ],
      { cwd: root, stdio: 'inherit' },
    );
    const stop = (signal: NodeJS.Signals) => runner.kill(signal);
    process.on('SIGINT', () => stop('SIGINT')).on('SIGTERM', () => stop('SIGTERM'));
    const exitCode = await new Promise<number>((resolve) => runner.once('exit', (code) => resolve(code ?? 1)));
    const report = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Report) : undefined;
    const counts = count(report, exitCode);
    console.log(summary(counts));
    return exitCode !== 0 || counts.failed > 0 || counts.passed === 0 ? 1 : 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
