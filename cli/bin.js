#!/usr/bin/env node
// Plain JavaScript on purpose: the machine's Node may be older than the one this needs. Where it is, the pinned Node
// from node_modules runs the command in its place.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const MAJOR_MIN = 24;
const main = fileURLToPath(new URL('./main.ts', import.meta.url));
const pinned = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));

if (Number(process.versions.node.split('.')[0]) >= MAJOR_MIN) {
  await import(main);
} else if (existsSync(pinned)) {
  // It ends when this process does: see dev/launcher.ts.
  const run = spawnSync(pinned, ['--disable-warning=ExperimentalWarning', main, ...process.argv.slice(2)], {
    stdio: 'inherit',
    env: { ...process.env, BETTER_COMPUTE_LAUNCHER: String(process.pid) },
  });
  process.exit(run.status ?? 1);
} else {
  console.error(
    `better-compute needs Node ${MAJOR_MIN} or newer, this is ${process.version}. Run "npm ci" in its folder first.`,
  );
  process.exit(2);
}
