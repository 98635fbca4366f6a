/** Every subcommand of `bcd`, in the order in which help lists them. */
import type { Command } from 'commander';
import { inventoryCommand } from './inventory.ts';
import { statusCommand } from './status.ts';

export const COMMANDS: readonly (() => Command)[] = [inventoryCommand, statusCommand];
