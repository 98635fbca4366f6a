/**
 * The owner's verbs. A webhook belongs to the caller's tenant. Its secret is shown by create and rotateSecret alone;
 * a repeated call with the same key shows the same one.
 */
import { type Problem, problem } from '#core/kernel/errors.ts';
import { newId } from '#core/kernel/ids.ts';
import { requireWebhookUrl } from '#core/webhooks/address.ts';
import type { webhookOperations } from '#core/webhooks/contract.ts';
import { ROTATION_SECONDS } from '#core/webhooks/schedule.ts';
import { newSecret } from '#core/webhooks/signature.ts';
import { deliveryStates } from '#core/webhooks/states.ts';
import type { Tx } from '#db/mutate.ts';
import type { Handlers, RequestContext } from '../context.ts';
import { type After, keysetPage, notFound, performOnce, requireCollection, requireVersion } from '../verbs.ts';
import * as sql from './queries.ts';

/** A tenant's webhooks; each event costs one row a webhook that asked for it. */
const WEBHOOKS_MAX = 50;
const STRICT = { allowLoopback: false };
const TYPE = 'compute-webhook';

type Verb = 'update' | 'delete' | 'rotateSecret' | 'test' | 'redeliver';

/** `missing`: what to say when there is no such webhook for this caller. */
async function authorized(ctx: RequestContext, id: string, verb: string, missing: Problem = notFound('webhook', id)) {
  const found = await sql.byId(ctx.db, id);
  const { tenantId: own, rootTenant } = ctx.caller;
  if (found === undefined || (found.tenantId !== own && !rootTenant)) throw missing;
  const { tenantId, url } = found;
  const decision = await ctx.require(`compute:webhooks:${verb}`, { type: TYPE, id, tenantId, attributes: { url } });
  return { found, decision };
}

/** Authorize, then once per key, with the webhook's row locked, in one transaction with its audit record. */
async function change<T>(
  ctx: RequestContext,
  id: string,
  verb: Verb,
  input: unknown,
  act: (tx: Tx, webhook: sql.WebhookView) => Promise<T>,
  missing?: Problem,
): Promise<T> {
  const { decision } = await authorized(ctx, id, verb, missing);
  return performOnce(ctx, `webhooks.${verb}`, decision, input, async (tx) => {
    const webhook = await sql.lock(tx, id);
    if (webhook === undefined) throw notFound('webhook', id);
    tx.audit({ tenantId: webhook.tenantId, action: `compute:webhooks:${verb}`, type: TYPE, id });
    return act(tx, webhook);
  });
}

function project(tx: Tx, w: sql.WebhookView): void {
  tx.project({ type: TYPE, id: w.id, tenantId: w.tenantId, attributes: { url: w.url } });
}

function requireEnabled(w: sql.WebhookView): void {
  if (!w.enabled) throw problem('CONFLICT', `the webhook is disabled: ${w.disabledReason ?? 'enable it first'}`);
}

/** A delivery became due: nothing is woken by it, but there is something to do. */
function due<T>(ctx: RequestContext, answer: T): T {
  ctx.poke([]);
  return answer;
}

export const handlers: Handlers<typeof webhookOperations> = {
  async 'webhooks.create'(ctx, input) {
    const { body } = input;
    requireWebhookUrl(body.url, ctx.webhookAddresses ?? STRICT);
    const { tenantId } = ctx.caller;
    const decision = await requireCollection(ctx, 'compute:webhooks:create', TYPE);
    return performOnce(ctx, 'webhooks.create', decision, input, async (tx) => {
      if ((await sql.countLocked(tx, tenantId)) >= WEBHOOKS_MAX) {
        throw problem('CONFLICT', `a tenant may have ${WEBHOOKS_MAX} webhooks; delete one first`);
      }
      const secret = newSecret();
      const webhook = await sql.insert(tx, { ...body, id: newId('webhook'), tenantId, secret });
      project(tx, webhook);
      tx.audit({
        tenantId,
        action: 'compute:webhooks:create',
        type: TYPE,
        id: webhook.id,
        data: { url: webhook.url },
      });
      return { ...webhook, secret };
    });
  },

  async 'webhooks.get'(ctx, input) {
    return (await authorized(ctx, input.id, 'get')).found;
  },

  async 'webhooks.list'(ctx, input) {
    const { tenantId } = ctx.caller;
    await requireCollection(ctx, 'compute:webhooks:list', TYPE);
    const fetch = (after: After | undefined, limit: number) => sql.list(ctx.db, tenantId, input.order, after, limit);
    return keysetPage(ctx, 'webhooks.list', input, fetch, (r) => r.view);
  },

  async 'webhooks.update'(ctx, input) {
    const { body } = input;
    if (body.url !== undefined) requireWebhookUrl(body.url, ctx.webhookAddresses ?? STRICT);
    return change(ctx, input.id, 'update', input, async (tx, webhook) => {
      requireVersion(ctx, webhook.version);
      const updated = await sql.update(tx, webhook.id, {
        url: body.url ?? webhook.url,
        eventTypes: body.eventTypes ?? webhook.eventTypes,
        enabled: body.enabled ?? webhook.enabled,
      });
      project(tx, updated);
      return updated;
    });
  },

  async 'webhooks.delete'(ctx, input) {
    return change(ctx, input.id, 'delete', input, async (tx, webhook) => {
      await sql.remove(tx, webhook.id);
      tx.unproject(TYPE, webhook.id);
      return {};
    });
  },

  async 'webhooks.rotateSecret'(ctx, input) {
    return change(ctx, input.id, 'rotateSecret', input, async (tx, webhook) => {
      const secret = newSecret();
      return { ...(await sql.rotate(tx, webhook.id, secret, ROTATION_SECONDS)), secret };
    });
  },

  async 'webhooks.test'(ctx, input) {
    const delivery = await change(ctx, input.id, 'test', input, async (tx, webhook) => {
      requireEnabled(webhook);
      return (await sql.deliveryById(tx, await sql.insertTest(tx, webhook)))!;
    });
    return due(ctx, delivery);
  },

  async 'webhooks.deliveries'(ctx, input) {
    await authorized(ctx, input.id, 'deliveries');
    const fetch = (after: After | undefined, limit: number) =>
      sql.deliveries(ctx.db, input.id, input.state, input.order, after, limit);
    return keysetPage(ctx, 'webhooks.deliveries', input, fetch, (r) => r.view);
  },

  async 'webhooks.redeliver'(ctx, input) {
    const delivery = await sql.deliveryById(ctx.db, input.id);
    const missing = notFound('delivery', input.id);
    if (delivery === undefined) throw missing;
    const act = async (tx: Tx, webhook: sql.WebhookView) => {
      requireEnabled(webhook);
      if (!(await sql.eventKept(tx, delivery.eventId))) {
        throw problem('CONFLICT', 'the event is older than events are kept');
      }
      await tx.transition(deliveryStates, input.id, 'redeliver', 'asked for by its owner');
      await sql.restart(tx, input.id);
      return (await sql.deliveryById(tx, input.id))!;
    };
    const restarted = await change(ctx, delivery.webhookId, 'redeliver', input, act, missing);
    return due(ctx, restarted);
  },
};
