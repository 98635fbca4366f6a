/** Every subcommand of `bcd`, in the order in which help lists them. */
import type { Command } from 'commander';
import { inventoryCommand } from './inventory.ts';
import { joinCommand } from './join.ts';
import { nodeCommand } from './node.ts';
import { simCommand } from './sim.ts';
import { statusCommand } from './status.ts';

export const COMMANDS: readonly (() => Command)[] = [
  joinCommand,
  nodeCommand,
  statusCommand,
  inventoryCommand,
  simCommand,
];
