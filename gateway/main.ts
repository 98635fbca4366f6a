/**
 * Process entry of a gateway. Prints one JSON line when its ports are open. Ends in order on SIGTERM and SIGINT, and
 * with exit code 19 when a newer process took over its id.
 */
import tls from 'node:tls';
import pino from 'pino';
import { ERRORS, isProblem } from '#core/kernel/errors.ts';
import { readConfig } from './config.ts';
import { startGateway } from './gateway.ts';

tls.DEFAULT_MIN_VERSION = 'TLSv1.3';

async function main(): Promise<void> {
  const config = readConfig(process.env);
  const log = pino({ name: 'gateway', base: { gateway: config.gatewayId } }, pino.destination({ dest: 2, sync: true }));
  let ending = false;
  const end = (code: number, why: string) => {
    if (ending) return;
    ending = true;
    log.info({ why }, 'stopping');
    void gateway.stop().then(
      () => process.exit(code),
      (e: unknown) => {
        log.error({ err: e }, 'did not stop in order');
        process.exit(1);
      },
    );
  };
  const gateway = await startGateway(config, {
    log: (level, message, about) => log[level](about, message),
    onFenced: () => end(ERRORS.STALE_EPOCH.exit, 'a newer process has this gateway id'),
  });
  const { sessionPort, joinPort, adminPort } = gateway;
  process.stdout.write(`ready ${JSON.stringify({ sessionPort, joinPort, adminPort, pid: process.pid })}\n`);
  process.once('SIGTERM', () => end(0, 'SIGTERM'));
  process.once('SIGINT', () => end(0, 'SIGINT'));
}

main().catch((e: unknown) => {
  const errors = isProblem(e) ? ((e.details as { errors?: { field: string; message: string }[] })?.errors ?? []) : [];
  process.stderr.write(`gateway: ${e instanceof Error ? e.message : String(e)}\n`);
  for (const { field, message } of errors) process.stderr.write(`  ${field}: ${message}\n`);
  process.exitCode = isProblem(e) ? e.spec.exit : 1;
});
