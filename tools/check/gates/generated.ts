import type { Finding, Gate } from '../gate.ts';
import { runNode, runTool } from '../tool.ts';

const STALE = /^(\S+) is not what the tables say/;

export const generated: Gate = {
  name: 'generated',
  why: 'What is made from the tables must say what the tables say.',
  async run(root) {
    const [made, lint] = await Promise.all([
      runNode(root, 'tools/gen/main.ts', ['--check']),
      runTool(`${root}/proto`, `${root}/node_modules/.bin/buf`, ['lint']),
    ]);
    const findings: Finding[] = [];
    for (const line of made.output.split('\n')) {
      const stale = STALE.exec(line);
      if (stale !== null)
        findings.push({ file: stale[1]!, what: 'it is not what the tables say', mend: 'run `npm run gen`' });
    }
    if (made.code !== 0 && findings.length === 0)
      findings.push({
        file: 'tools/gen/main.ts',
        what: `it ended with ${made.code}: ${made.output.slice(-1500)}`,
        mend: 'make it run',
      });
    for (const line of lint.code === 0 ? [] : lint.output.trim().split('\n')) {
      const [file, at, , ...what] = line.split(':');
      findings.push({
        file: `proto/${file}`,
        line: Number(at),
        what: what.join(':').trim(),
        mend: 'follow the rule of `buf lint`',
      });
    }
    return findings;
  },
};
