/** proto/gen: messages and services of the protocol, made by buf in a folder of its own. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { promisify } from 'node:util';

const TIMEOUT_MS = 120_000;

/** Path -> text. */
export async function protocolCode(root: string): Promise<Record<string, string>> {
  const out = mkdtempSync(join(tmpdir(), 'better-compute-gen-'));
  const bin = join(root, 'node_modules/.bin');
  try {
    await promisify(execFile)(join(bin, 'buf'), ['generate', '--output', out], {
      cwd: join(root, 'proto'),
      timeout: TIMEOUT_MS,
      env: { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH'] ?? ''}` },
    });
    const made = readdirSync(out, { recursive: true, withFileTypes: true }).filter((f) => f.isFile());
    return Object.fromEntries(
      made.map((f) => {
        const path = join(f.parentPath, f.name);
        return [join('proto', relative(out, path)), readFileSync(path, 'utf8')];
      }),
    );
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}
