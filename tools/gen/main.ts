/**
 * `npm run gen`: writes everything that is made from the tables of the code: reference, OpenAPI document, types of the
 * client, protocol code. `--check` writes nothing, names what differs and ends with 1.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { cliPage } from './cli.ts';
import { clientTypes } from './client-types.ts';
import { errorsPage } from './errors.ts';
import { openApiText } from './openapi.ts';
import { operationsPage } from './operations.ts';
import { protocolCode } from './protocol.ts';
import { settingsPage } from './settings.ts';
import { statesPage } from './states.ts';

const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } });
const root = resolve(import.meta.dirname, '../..');

/** Path -> text. */
const FILES: Readonly<Record<string, () => string | Promise<string>>> = {
  'docs/reference/operations.md': operationsPage,
  'docs/reference/errors.md': errorsPage,
  'docs/reference/states.md': statesPage,
  'docs/reference/settings.md': settingsPage,
  'docs/reference/cli.md': cliPage,
  'docs/reference/openapi.json': openApiText,
  'sdk/generated/api.d.ts': clientTypes,
};

const files = new Map(Object.entries(await protocolCode(root)));
for (const [path, make] of Object.entries(FILES)) files.set(path, await make());

const stale: string[] = [];
for (const [path, text] of files) {
  const at = join(root, path);
  if (existsSync(at) && readFileSync(at, 'utf8') === text) continue;
  stale.push(path);
  if (values.check) continue;
  mkdirSync(dirname(at), { recursive: true });
  writeFileSync(at, text);
}
if (values.check) {
  for (const path of stale) console.error(`${path} is not what the tables say; run \`npm run gen\``);
  process.exitCode = stale.length === 0 ? 0 : 1;
} else {
  console.log(stale.length === 0 ? 'everything is current' : stale.map((p) => `wrote ${p}`).join('\n'));
}
