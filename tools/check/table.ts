/** Every gate, quick ones first. */
import type { Gate } from './gate.ts';
import { bareTime } from './gates/bare-time.ts';
import { files } from './gates/files.ts';
import { formatAndLint } from './gates/format-and-lint.ts';
import { importRule } from './gates/import-rule.ts';
import { stateColumns } from './gates/state-columns.ts';
import { types } from './gates/types.ts';

export const GATES: readonly Gate[] = [files, bareTime, stateColumns, formatAndLint, importRule, types];
