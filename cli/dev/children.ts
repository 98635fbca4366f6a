/** The processes of a local control plane: how each is started and when it counts as ready. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { systemClock } from '#core/kernel/time.ts';
import type { EdgeVars } from './edge.ts';
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts';
import { isListening } from './ports.ts';
import { startPostgres } from './postgres.ts';
import { eachLine, untilLine } from './process-output.ts';
import type { LocalSecrets } from './secrets.ts';
import type { ChildSpec } from './supervisor.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const READY_SECONDS = 60;

export function postgresChild(stateDir: string, port: number, onUrl: (url: string) => void): ChildSpec {
  return {
    name: 'postgres',
    start: async (log) => {
      const server = await startPostgres({ stateDir, port, onLog: log });
      onUrl(server.url);
      return { process: server.process };
    },
  };
}

/** `entry` is another Worker than wrangler.toml's. */
export function edgeChild(stateDir: string, port: number, vars: EdgeVars, entry?: string): ChildSpec {
  return {
    name: 'edge',
    start: async (log) => {
      const host = spawnNode(join(ROOT, 'cli/dev/edge-host.ts'), [], {
        EDGE_PORT: String(port),
        EDGE_STATE_DIR: join(stateDir, 'edge'),
        EDGE_VARS: JSON.stringify(vars),
        ...(entry === undefined ? {} : { EDGE_ENTRY: entry }),
      });
      const { workerd } = await untilLine(host, readyLine, log, READY_SECONDS);
      return { process: host, pids: { workerd } };
    },
  };
}

function readyLine(line: string): { url: string; workerd: number } | undefined {
  return line.startsWith('ready {') ? (JSON.parse(line.slice(6)) as { url: string; workerd: number }) : undefined;
}

export interface GatewayPlace {
  readonly databaseUrl: string;
  readonly apiUrl: string;
  readonly gatewayPort: number;
  readonly joinPort: number;
  readonly region: string;
}

export function gatewayChild(secrets: LocalSecrets, at: GatewayPlace): ChildSpec {
  return {
    name: 'gateway',
    start: async (log) => {
      const gateway = spawnNode(join(ROOT, 'gateway/main.ts'), [], {
        DATABASE_URL: at.databaseUrl,
        GATEWAY_PORT: String(at.gatewayPort),
        JOIN_PORT: String(at.joinPort),
        GATEWAY_CERT_PEM: secrets.gatewayCertPem,
        GATEWAY_KEY_PEM: secrets.gatewayKeyPem,
        CA_CERT_PEM: secrets.caCertPem,
        API_URL: at.apiUrl,
        GATEWAY_TOKEN: secrets.gatewayToken,
        REGION: at.region,
      });
      await untilListening(gateway, [at.gatewayPort, at.joinPort], log);
      return { process: gateway };
    },
  };
}

/** A bcd of its own process; `args` are bcd's. Ready as soon as it runs, since joining takes as long as it takes. */
export function bcdChild(name: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): ChildSpec {
  return {
    name,
    start: async (log) => {
      const bcd = spawnNode(join(ROOT, 'bcd/bin.ts'), args, env);
      eachLine(bcd.stdout, log);
      eachLine(bcd.stderr, log);
      await bcd.pid;
      return { process: bcd };
    },
  };
}

function spawnNode(script: string, args: readonly string[], env: Readonly<Record<string, string>>): GuardedProcess {
  return spawnGuarded({
    command: process.execPath,
    args: ['--disable-warning=ExperimentalWarning', script, ...args],
    env: { ...process.env, ...env },
    cwd: ROOT,
  });
}

async function untilListening(child: GuardedProcess, ports: readonly number[], log: (line: string) => void) {
  const last: string[] = [];
  const onLine = (line: string) => {
    log(line);
    if (last.push(line) > 15) last.shift();
  };
  eachLine(child.stdout, onLine);
  eachLine(child.stderr, onLine);
  let gone = false;
  void child.exited.then(() => {
    gone = true;
  });
  for (let tenth = 0; tenth < READY_SECONDS * 10 && !gone; tenth++) {
    const open = await Promise.all(ports.map(isListening));
    if (open.every((o) => o)) return;
    await systemClock.sleep(100);
  }
  await child.stop();
  throw new Error(`${gone ? 'ended' : `does not listen on ${ports.join(', ')}`}:\n${last.join('\n')}`);
}
