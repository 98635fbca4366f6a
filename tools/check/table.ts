/** Every gate, quick ones first. */
import type { Gate } from './gate.ts';
import { bareTime } from './gates/bare-time.ts';
import { files } from './gates/files.ts';
import { formatAndLint } from './gates/format-and-lint.ts';
import { generated } from './gates/generated.ts';
import { importRule } from './gates/import-rule.ts';
import { constraints, docs, operations } from './gates/probed.ts';
import { stateColumns } from './gates/state-columns.ts';
import { types } from './gates/types.ts';
import { workerSize } from './gates/worker-size.ts';

export const GATES: readonly Gate[] = [
  files,
  bareTime,
  stateColumns,
  formatAndLint,
  importRule,
  operations,
  docs,
  generated,
  workerSize,
  constraints,
  types,
];
