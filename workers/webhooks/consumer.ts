/**
 * The queue's consumers. A message names a delivery and the attempt it is about; all else is read from the row when it
 * is claimed. A message is acknowledged once its attempt is recorded, or found to be none of ours any more.
 */
import { z } from 'zod';
import type { Log } from '#core/kernel/log.ts';
import { systemClock } from '#core/kernel/time.ts';
import type { AddressPolicy } from '#core/webhooks/address.ts';
import { fetchTransport } from '#plugins/webhook-transport/fetch.ts';
import { attemptDelivery, type DeliveryContext } from '#services/webhooks/index.ts';
import { type DurableEnv, openDatabase } from '../durable/bindings.ts';
import { consoleLog } from '../durable/console-log.ts';
import { resolveAll } from './resolve.ts';

/** Connections that may wait for an answer at once in one invocation. */
const PARALLEL = 6;
const RETRY_SECONDS_MAX = 60;
/** Under the queue's own limit for one batch, whatever the endpoints do. */
const BATCH_MS_MAX = 120_000;

const Message = z.object({ id: z.string(), attempt: z.number().int().nonnegative() });

export function webhookPolicy(env: Pick<DurableEnv, 'ALLOW_PRIVATE_WEBHOOKS'>): AddressPolicy {
  return { allowLoopback: env.ALLOW_PRIVATE_WEBHOOKS === 'loopback' };
}

/** Attempts the deliveries of a batch. */
export async function consumeDeliveries(batch: MessageBatch<unknown>, env: DurableEnv): Promise<void> {
  const log = consoleLog('webhooks');
  const ctx: DeliveryContext = {
    db: openDatabase(env),
    transport: fetchTransport({ policy: webhookPolicy(env), resolve: resolveAll }),
    random: Math.random,
  };
  const waiting = [...batch.messages];
  const until = systemClock.now() + BATCH_MS_MAX;
  const work = async () => {
    for (let m = waiting.shift(); m !== undefined; m = waiting.shift()) {
      if (systemClock.now() > until) m.retry();
      else await consumeOne(m, ctx, log);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
}

async function consumeOne(m: Message<unknown>, ctx: DeliveryContext, log: Log): Promise<void> {
  const parsed = Message.safeParse(m.body);
  if (!parsed.success) {
    log.error({ messageId: m.id }, 'not a delivery message');
    m.ack();
    return;
  }
  try {
    const end = await attemptDelivery(ctx, parsed.data);
    if (end === 'dead') log.info({ delivery: parsed.data.id }, 'delivery is dead');
    m.ack();
  } catch (e) {
    log.warn({ delivery: parsed.data.id, err: String(e) }, 'attempt not recorded');
    m.retry({ delaySeconds: Math.min(RETRY_SECONDS_MAX, 2 ** m.attempts) });
  }
}

/**
 * Messages that could not be handled: a fault of ours, such as a database that was away for long. The rows are still
 * pending and the sweep enqueues them again, so it is enough to say which.
 */
export function consumeDeadLetters(batch: MessageBatch<unknown>): void {
  const log = consoleLog('webhooks');
  log.error({ messages: batch.messages.map((m) => m.body) }, 'deliveries came back from the dead-letter queue');
  batch.ackAll();
}
