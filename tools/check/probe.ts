/**
 * Some gates must load the tables of the tree that they judge, which may be another one than theirs. A probe is a program
 * of that tree: it prints its findings as JSON on its last line.
 */
import type { Finding } from './gate.ts';
import { runNode } from './tool.ts';

export async function runProbe(root: string, name: string): Promise<Finding[]> {
  const script = `tools/check/probes/${name}.ts`;
  const { code, output } = await runNode(root, script, []);
  const last = output.trimEnd().split('\n').at(-1) ?? '';
  if (code === 0 && last.startsWith('[')) return JSON.parse(last) as Finding[];
  return [{ file: script, what: `the probe ended with ${code}: ${output.trim().slice(-1500)}`, mend: 'make it run' }];
}
