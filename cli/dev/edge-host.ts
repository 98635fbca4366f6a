/**
 * The edge as a process of its own, so that the supervisor can start it again on the same port. Reads EDGE_PORT,
 * EDGE_STATE_DIR, EDGE_VARS (JSON) and EDGE_ENTRY (another Worker than wrangler.toml's) from the environment, prints one line `ready {"url":...,"workerd":pid}` and then
 * runs until told to stop. When workerd dies it ends with 1.
 */
import { type EdgeVars, startEdge } from './edge.ts';

const { EDGE_ENTRY, EDGE_PORT, EDGE_STATE_DIR, EDGE_VARS } = process.env;
if (EDGE_VARS === undefined) throw new Error('EDGE_VARS is missing');

const edge = await startEdge({
  vars: JSON.parse(EDGE_VARS) as EdgeVars,
  port: Number(EDGE_PORT ?? 0),
  ...(EDGE_ENTRY === undefined ? {} : { entry: EDGE_ENTRY }),
  ...(EDGE_STATE_DIR === undefined ? {} : { persistDir: EDGE_STATE_DIR }),
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void edge.stop().finally(() => process.exit(0)));
}
console.log(`ready ${JSON.stringify({ url: edge.url, workerd: edge.workerdPid })}`);
await edge.died;
console.error(`workerd (pid ${edge.workerdPid}) died`);
process.exit(1);
