/**
 * `npm run build:bcd [-- --out DIR]`: the daemon as one executable (Node's single-executable application), beside it
 * its systemd unit. Prints sizes and the time from start to `--version`, last line JSON.
 *
 * Order matters twice: the binary is stripped before the blob goes in (stripping after breaks it), and the blob is made
 * by the very Node that carries it.
 */
import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
/** Node looks for it to know that a blob is inside. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function strip(path: string): Promise<boolean> {
  try {
    await run('strip', [path], { timeout: 120_000 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return false;
  }
}

async function main(): Promise<void> {
  if (process.platform !== 'linux') throw new Error('bcd runs on Linux; build it there');
  const at = process.argv.indexOf('--out');
  const out = resolve(root, at < 0 ? 'dist' : (process.argv[at + 1] ?? 'dist'));
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
  const work = await mkdtemp(join(tmpdir(), 'build-bcd-'));
  const begun = performance.now();
  try {
    const bundle = join(work, 'bcd.cjs');
    await build({
      entryPoints: [join(root, 'bcd/bin.ts')],
      outfile: bundle,
      absWorkingDir: root,
      bundle: true,
      platform: 'node',
      target: 'node24',
      format: 'cjs',
      legalComments: 'none',
      logLevel: 'warning',
      define: { BCD_BUILD_VERSION: JSON.stringify(version) },
    });
    const blob = join(work, 'bcd.blob');
    const config = join(work, 'sea.json');
    await writeFile(
      config,
      JSON.stringify({
        main: bundle,
        output: blob,
        disableExperimentalSEAWarning: true,
        useSnapshot: false,
        useCodeCache: true,
      }),
    );
    await run(process.execPath, ['--experimental-sea-config', config], { timeout: 120_000 });
    const executable = join(work, 'bcd');
    await copyFile(process.execPath, executable);
    await chmod(executable, 0o755);
    const stripped = await strip(executable);
    const postject = join(root, 'node_modules/.bin/postject');
    await run(process.execPath, [postject, executable, 'NODE_SEA_BLOB', blob, '--sentinel-fuse', FUSE], {
      timeout: 300_000,
    });
    await mkdir(out, { recursive: true });
    const target = join(out, 'bcd');
    // Replaced, not overwritten: one that runs keeps its own file.
    await rm(target, { force: true });
    await copyFile(executable, target);
    await copyFile(join(root, 'bcd/bcd.service'), join(out, 'bcd.service'));

    const started = performance.now();
    const shown = (await run(target, ['--version'], { timeout: 60_000 })).stdout.trim();
    const startMs = Math.round(performance.now() - started);
    if (shown !== version) throw new Error(`the executable says version ${shown}, expected ${version}`);
    const { stdout } = await run(target, ['inventory', '--json'], { timeout: 120_000, maxBuffer: 64 * 1024 * 1024 });
    const sections = Object.keys((JSON.parse(stdout) as { sections: object }).sections);
    const bytes = (await stat(target)).size;
    const bundleBytes = (await stat(bundle)).size;
    say(`bundle      ${(bundleBytes / 1024 ** 2).toFixed(2)} MiB`);
    say(
      `executable  ${(bytes / 1024 ** 2).toFixed(1)} MiB${stripped ? '' : ' (not stripped: no strip on this machine)'}`,
    );
    say(`start       ${startMs} ms to --version`);
    say(`inventory   ${sections.join(', ')}`);
    say(`written to  ${target}`);
    const seconds = Number(((performance.now() - begun) / 1000).toFixed(1));
    say(JSON.stringify({ ok: true, version, path: target, bytes, bundleBytes, stripped, startMs, seconds }));
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

await main();
