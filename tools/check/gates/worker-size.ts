import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Finding, Gate } from '../gate.ts';
import { runNode } from '../tool.ts';

/** Cloudflare takes 3 MiB on the smallest plan; what is larger also starts slower, and every isolate starts. */
const COMPRESSED_KIB_MAX = 1024;
const SIZE = /Total Upload: [\d.]+ KiB \/ gzip: ([\d.]+) KiB/;

export const workerSize: Gate = {
  name: 'worker-size',
  why: 'The Worker must deploy as wrangler.toml says, and every isolate pays for its size when it starts.',
  async run(root, note) {
    const out = mkdtempSync(join(tmpdir(), 'better-compute-deploy-'));
    try {
      const { code, output } = await runNode(
        root,
        'node_modules/wrangler/bin/wrangler.js',
        ['deploy', '--dry-run', '--outdir', out],
        { WRANGLER_SEND_METRICS: 'false', CI: 'true', WRANGLER_LOG_PATH: out },
      );
      const findings: Finding[] = [];
      const find = (what: string, mend: string) => findings.push({ file: 'wrangler.toml', what, mend });
      const size = SIZE.exec(output)?.[1];
      if (code !== 0 || size === undefined)
        find(`the dry deploy ended with ${code}: ${output.trim().slice(-1500)}`, 'make it deploy');
      else note(`${size} KiB compressed`);
      if (Number(size) > COMPRESSED_KIB_MAX)
        find(
          `the Worker has ${size} KiB compressed, above ${COMPRESSED_KIB_MAX}`,
          'take a dependency out, or load less',
        );
      const warned = /WARNING[\s\S]{0,600}/.exec(output)?.[0];
      if (warned !== undefined) find(`wrangler warns: ${warned.trim()}`, 'correct the setting');
      return findings;
    } finally {
      rmSync(out, { recursive: true, force: true });
    }
  },
};
