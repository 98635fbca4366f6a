/** docs/reference/settings.md */
import { Environment } from '#gateway/config.ts';
import { WORKER_SETTINGS, type WorkerSetting } from '#workers/settings.ts';
import { jsonSchemaOf, typeOf } from './fields.ts';
import { code, page, table } from './markdown.ts';

function worker(): string {
  const rows = Object.entries(WORKER_SETTINGS).map(([name, given]) => {
    const s: WorkerSetting = given;
    return [code(name), s.kind, s.preset ?? 'must be set', s.doc];
  });
  return table(['Setting', 'Kind', 'Default', 'Meaning'], rows);
}

function gateway(): string {
  const schema = jsonSchemaOf(Environment, 'input');
  const rows = Object.entries(schema.properties ?? {}).map(([name, s]) => {
    const preset =
      s.default === undefined ? (schema.required?.includes(name) ? 'must be set' : 'none') : String(s.default);
    return [code(name), typeOf(s, {}), preset, s.description ?? ''];
  });
  return table(['Variable', 'Type', 'Default', 'Meaning'], rows);
}

const COMMAND_LINE = [
  ['BETTER_COMPUTE_URL', 'Base URL of the API; `--url` goes before it.'],
  ['BETTER_COMPUTE_TOKEN', 'Token; `--token` goes before it.'],
  ['BETTER_COMPUTE_CONFIG', 'File of the contexts; by default `better-compute/contexts.json` in `XDG_CONFIG_HOME`.'],
  ['DATABASE_URL', 'For `setup`: direct connection string of the database.'],
  ['BCD_JOIN_TOKEN', 'For `bcd join` and `bcd sim`: the join token, which process lists do not show.'],
].map(([name, meaning]) => [code(name!), meaning!]);

export function settingsPage(): string {
  return page(
    'Settings',
    '## Worker',
    'Variables stand in `wrangler.toml`, secrets are put with `wrangler secret put`. Objects, queues and crons stand in `wrangler.toml` with their reasons.',
    worker(),
    '## Gateway',
    'Environment variables. Each may also be given as `<NAME>_FILE`, the name of a file that holds the value.',
    gateway(),
    '## Command lines',
    'Everything else that `better-compute` and `bcd` take is an option: see [cli.md](cli.md).',
    table(['Variable', 'Meaning'], COMMAND_LINE),
  );
}
