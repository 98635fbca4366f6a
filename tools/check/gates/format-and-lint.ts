import { realpathSync } from 'node:fs';
import { relative } from 'node:path';
import type { Finding, Gate } from '../gate.ts';
import { runNode } from '../tool.ts';

const LINE = /^::(?:error|warning) title=([^,:]*),file=([^,]*),line=(\d+)[^:]*::(.*)$/;

export const formatAndLint: Gate = {
  name: 'format-and-lint',
  why: 'One format and one set of lints, so that a review is about meaning.',
  async run(root) {
    const { code, output } = await runNode(root, 'node_modules/@biomejs/biome/bin/biome', [
      'check',
      '--reporter=github',
      '--max-diagnostics=200',
      '--error-on-warnings',
      '.',
    ]);
    if (code === 0) return [];
    const findings: Finding[] = [];
    for (const line of output.split('\n')) {
      const m = LINE.exec(line);
      if (m === null) continue;
      const [, rule, path, at, what] = m;
      const file = relative(realpathSync(root), path!);
      findings.push({
        file,
        line: Number(at),
        what: `${rule}: ${what}`,
        mend: `run \`npx biome check --write ${file}\`; what it leaves needs a hand`,
      });
    }
    if (findings.length === 0) {
      findings.push({
        file: 'biome.json',
        what: `biome ended with ${code}: ${output.trim().slice(-800)}`,
        mend: 'make biome run',
      });
    }
    return findings;
  },
};
