/**
 * Who may import whom. A layer imports itself, the layers in its row, and packages. `cli/dev`, tools and tests wire
 * everything and stand in no row. Tests beside a source may also use test/kit and Node.
 */
const ROWS = {
  core: [],
  proto: [],
  db: ['core'],
  plugins: ['core'],
  sdk: ['core'],
  services: ['core', 'db'],
  workers: ['core', 'services', 'plugins', 'proto', 'db'],
  gateway: ['core', 'services', 'plugins', 'proto', 'db'],
  reconcilers: ['core', 'services', 'plugins', 'proto', 'db'],
  bcd: ['core', 'proto'],
  cli: ['core', 'sdk'],
  console: ['core', 'sdk'],
};
const TEST = '[.]test[.]ts$';
const OURS = [...Object.keys(ROWS), 'test', 'tools'];
const group = (names) => `^(${names.join('|')})/`;

const layerRules = Object.entries(ROWS).flatMap(([layer, may]) => {
  const comment =
    may.length === 0
      ? `${layer} imports no other layer`
      : `${layer} imports only ${may.join(', ')}; move what both need down, or pass it in as an argument`;
  const closed = OURS.filter((l) => l !== layer && !may.includes(l));
  const durable = layer === 'workers' ? ['^workers/durable/'] : [];
  const dev = layer === 'cli' ? ['^cli/dev/', '^cli/dev[.]ts$'] : [];
  return [
    {
      name: `layer-${layer}`,
      severity: 'error',
      comment,
      from: { path: `^${layer}/`, pathNot: [TEST, ...durable, ...dev] },
      to: { path: group(closed) },
    },
    {
      name: `layer-${layer}-tests`,
      severity: 'error',
      comment: `${comment}; a test beside its source may add test/kit`,
      from: { path: `^${layer}/.*${TEST}`, pathNot: dev },
      to: { path: group(closed.filter((l) => l !== 'test')) },
    },
    ...(layer === 'workers'
      ? [
          {
            name: 'layer-workers-durable',
            severity: 'error',
            comment: `${comment}; only the Shard object hosts the reconcilers`,
            from: { path: '^workers/durable/', pathNot: TEST },
            to: { path: group(closed.filter((l) => l !== 'reconcilers')) },
          },
        ]
      : []),
  ];
});

const PORTABLE = group(['core', 'db', 'services', 'sdk']);

module.exports = {
  forbidden: [
    ...layerRules,
    {
      name: 'service-door',
      severity: 'error',
      comment: 'a service is entered only by its index.ts, so that what stands behind it can change freely',
      from: { path: `${group(Object.keys(ROWS))}`, pathNot: '^services/' },
      to: { path: '^services/[^/]+/', pathNot: '^services/[^/]+/index[.]ts$' },
    },
    {
      name: 'service-door-siblings',
      severity: 'error',
      comment: 'a service enters another one only by its index.ts, as everybody else does',
      from: { path: '^services/([^/]+)/' },
      to: { path: '^services/[^/]+/', pathNot: ['^services/$1/', '^services/[^/]+/index[.]ts$'] },
    },
    {
      name: 'portable-no-node',
      severity: 'error',
      comment: 'core, db, services and sdk run in workerd, Node and browsers alike: no Node module, ask for a port',
      from: { path: PORTABLE, pathNot: TEST },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'portable-no-node-packages',
      severity: 'error',
      comment:
        'this package needs Node, and core, db, services and sdk run in workerd and browsers too: put it in a plugin',
      from: { path: PORTABLE, pathNot: TEST },
      to: { path: 'node_modules/(pg|ws|@grpc/grpc-js|pino|commander|miniflare|wrangler|esbuild)/' },
    },
    {
      name: 'no-cycle',
      severity: 'error',
      comment: 'files that import each other in a circle cannot be understood one at a time: move the shared part down',
      from: { pathNot: '^node_modules/' },
      // A cycle of types alone costs nothing at run time: the Worker's environment names the classes of its objects.
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'resolvable',
      severity: 'error',
      comment: 'this import leads nowhere, so no rule can judge it',
      from: {},
      to: { couldNotResolve: true, pathNot: '^(cloudflare:|node:)' },
    },
  ],
};
