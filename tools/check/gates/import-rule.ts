import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { cruise, type ICruiseOptions, type ICruiseResult, type IForbiddenRuleType } from 'dependency-cruiser';
import type { Finding, Gate } from '../gate.ts';
import { lineAt, SHIPPED, textOf } from '../tree.ts';

const { forbidden } = createRequire(import.meta.url)('../import-rule.cjs') as { forbidden: IForbiddenRuleType[] };

/** The line whose import leads to `to`: the last part of the path is what the source names. */
function importLine(root: string, from: string, to: string): number | undefined {
  const last = to.split('/').at(-1)!;
  const text = textOf(root, from);
  const at = text.search(new RegExp(`(from|import)\\b[^;]*['"][^'"]*${last.replaceAll('.', '\\.')}['"]`));
  if (at === -1) return undefined;
  return lineAt(text, text.indexOf(last, at));
}

export const importRule: Gate = {
  name: 'import-rule',
  why: 'The layers are the architecture: a forbidden import is a decision nobody made.',
  async run(root) {
    const options: ICruiseOptions = {
      baseDir: root,
      ruleSet: { forbidden },
      validate: true,
      doNotFollow: { path: 'node_modules' },
      exclude: { path: '^(node_modules|proto/gen|sdk/generated)/' },
      tsPreCompilationDeps: true,
      combinedDependencies: false,
    };
    const layers = [...SHIPPED, 'tools', 'test'].filter((l) => existsSync(join(root, l)));
    const { output } = await cruise(layers, options, {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
      extensions: ['.ts', '.js', '.mjs', '.cjs', '.json', '.d.ts'],
    });
    const { summary } = output as ICruiseResult;
    const comments = new Map(forbidden.map((rule) => [rule.name, rule.comment ?? '']));
    return summary.violations.map((v): Finding => {
      const chain = v.cycle === undefined ? '' : `: ${[v.from, ...v.cycle.map((c) => c.name)].join(' → ')}`;
      const line = importLine(root, v.from, v.cycle?.[0]?.name ?? v.to);
      return {
        file: v.from,
        ...(line === undefined ? {} : { line }),
        what: `${v.rule.name}: imports ${v.to}${chain}`,
        mend: comments.get(v.rule.name) ?? '',
      };
    });
  },
};
