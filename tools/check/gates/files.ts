import type { Finding, Gate } from '../gate.ts';
import { filesOf, isGenerated, isTest, textOf } from '../tree.ts';

const MAX_LINES = 500;
const WRITTEN = /\.([cm]?[jt]sx?|sql|sh|css|html|md|proto|toml|ya?ml)$/;
const MEANINGLESS = /^(utils?|common|helpers?|misc)$/;

export const files: Gate = {
  name: 'files',
  why: 'A file is read whole and named for its meaning; one that cannot be is several files.',
  async run(root) {
    const findings: Finding[] = [];
    for (const file of filesOf(root)) {
      if (file.includes('fixtures/')) continue;
      for (const part of file.split('/')) {
        if (MEANINGLESS.test(part.split('.', 1)[0]!)) {
          findings.push({
            file,
            what: `\`${part}\` says nothing about what is in it`,
            mend: 'name it for its meaning',
          });
        }
      }
      if (!WRITTEN.test(file) || isTest(file) || isGenerated(file)) continue;
      const lines = textOf(root, file).split('\n').length - 1;
      if (lines > MAX_LINES) {
        findings.push({
          file,
          line: MAX_LINES + 1,
          what: `${lines} lines, more than ${MAX_LINES}`,
          mend: 'split it by meaning',
        });
      }
    }
    return findings;
  },
};
