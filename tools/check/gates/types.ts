import type { Finding, Gate } from '../gate.ts';
import { runNode } from '../tool.ts';

const LINE = /^(.*?)\((\d+),\d+\): error (TS\d+: .*)$/;

export const types: Gate = {
  name: 'types',
  why: 'Two runtimes, two projects: what compiles for Node need not exist in workerd.',
  async run(root) {
    const findings: Finding[] = [];
    for (const project of ['.', 'workers']) {
      const { code, output } = await runNode(root, 'node_modules/typescript-native/bin/tsc', [
        '--pretty',
        'false',
        '-p',
        project,
      ]);
      if (code === 0) continue;
      const found: Finding[] = [];
      for (const line of output.split('\n')) {
        const m = LINE.exec(line);
        if (m !== null) {
          found.push({
            file: m[1]!,
            line: Number(m[2]),
            what: `${m[3]} (project ${project})`,
            mend: 'correct the types; `any` and a cast only move the error to run time',
          });
        }
      }
      if (found.length === 0) {
        const file = project === '.' ? 'tsconfig.json' : `${project}/tsconfig.json`;
        found.push({
          file,
          what: `the compiler ended with ${code}: ${output.trim().slice(-800)}`,
          mend: 'make it run',
        });
      }
      findings.push(...found);
    }
    // The layers in both projects report the same line twice.
    return [...new Map(findings.map((f) => [`${f.file}:${f.line}:${f.what.slice(0, 60)}`, f])).values()];
  },
};
