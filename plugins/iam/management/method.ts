/**
 * One method of the management interface: its input, and what it does for a caller. A change asks the evaluator first
 * and commits under the epoch of that answer, with its audit record; when policies changed meanwhile it is asked again.
 */
import { z } from 'zod';
import type { Catalog } from '#core/iam/catalog.ts';
import { IamError } from '#core/iam/iam-error.ts';
import { type PolicyDocument, parsePolicy } from '#core/iam/policy.ts';
import type { RequestMeta } from '#core/iam/port.ts';
import type { Snapshot } from '#core/iam/snapshot.ts';
import type { Json } from '#core/kernel/canonical-json.ts';
import type { Database, Row, Sql, SqlValue } from '#core/kernel/database.ts';
import { actorOf, type Engine, type Session } from '../engine.ts';
import { audit, change, EpochPassed, rows } from '../storage.ts';

const RUNS_MAX = 3;

export interface Target {
  readonly tenantId: string;
  /** `iam:roles:create`. */
  readonly action: string;
  /** Behind `iam/`: `roles` or `roles/rol_…`. */
  readonly resource: string;
}

export interface Recorded {
  readonly resourceId: string;
  readonly metadata?: Readonly<Record<string, Json | undefined>>;
}

export class Call {
  readonly engine: Engine;
  readonly session: Session;
  readonly meta: RequestMeta;
  constructor(engine: Engine, session: Session, meta: RequestMeta) {
    this.engine = engine;
    this.session = session;
    this.meta = meta;
  }

  get db(): Database {
    return this.engine.db;
  }
  get catalog(): Catalog {
    return this.engine.catalog;
  }
  get snapshot(): Snapshot {
    return this.session.snapshot;
  }

  read<R extends Row>(text: string, params: readonly SqlValue[]): Promise<R[]> {
    return rows<R>(this.db, text, params);
  }

  /** Throws ACCESS_DENIED. Gives whether only the root override allowed it. */
  async allow(target: Target): Promise<{ rootOverride: boolean }> {
    const check = { action: target.action, resource: { type: 'iam', id: target.resource, tenantId: target.tenantId } };
    const [answer] = await this.engine.ask(this.session, [check], this.meta);
    if (!answer!.decision.allowed) throw new IamError('ACCESS_DENIED', `your policies do not allow ${target.action}`);
    return { rootOverride: answer!.decision.reason === 'ROOT_OVERRIDE' };
  }

  /** An allowed change and its record, in one commit. */
  async change<T>(target: Target, fn: (tx: Sql) => Promise<[T, Recorded]>): Promise<T> {
    for (let run = 1; ; run++) {
      try {
        const { rootOverride } = await this.allow(target);
        return await this.commit(target, fn, rootOverride);
      } catch (e) {
        if (!(e instanceof EpochPassed)) throw e;
        if (run === RUNS_MAX) throw new IamError('STORAGE_BUSY', 'policies change too fast; repeat the call');
      }
    }
  }

  /** A change that rests on who the caller is and on no policy: deciding on one's own delegation, ending one's own session. */
  async ownChange<T>(target: Omit<Target, 'resource'>, fn: (tx: Sql) => Promise<[T, Recorded]>): Promise<T> {
    for (let run = 1; ; run++) {
      try {
        return await this.commit(target, fn, false);
      } catch (e) {
        if (!(e instanceof EpochPassed)) throw e;
        if (run === RUNS_MAX) throw new IamError('STORAGE_BUSY', 'policies change too fast; repeat the call');
        await this.engine.refresh(this.session);
      }
    }
  }

  private commit<T>(
    target: Omit<Target, 'resource'>,
    fn: (tx: Sql) => Promise<[T, Recorded]>,
    rootOverride: boolean,
  ): Promise<T> {
    return change(this.db, this.snapshot.epoch, async (tx) => {
      const [result, recorded] = await fn(tx);
      await audit(tx, [
        {
          ...actorOf(this.snapshot),
          tenantId: target.tenantId,
          action: target.action,
          outcome: 'allow',
          ...(rootOverride ? { rootOverride } : {}),
          resourceId: recorded.resourceId,
          metadata: { ...recorded.metadata, requestId: this.meta.requestId },
        },
      ]);
      return result;
    });
  }
}

export interface Method {
  readonly input: z.ZodType;
  readonly run: (call: Call, input: never) => Promise<unknown>;
}

export function method<S extends z.ZodType>(
  input: S,
  run: (call: Call, input: z.output<S>) => Promise<unknown>,
): Method {
  return { input, run };
}

export type Methods = Readonly<Record<string, Method>>;

// --- Words that many inputs share -------------------------------------------------------------------------------------

export const id = z.string().min(1).max(128);
export const name = z.string().min(1).max(128);
export const version = z.int().positive().optional();
export const page = { limit: z.int().min(1).max(200).default(100), after: z.string().max(256).default('') };
/** Milliseconds since the epoch. */
export const moment = z.int().min(0).max(8_640_000_000_000_000);
/** Checked by parsePolicy, whose errors name the place. */
export const document = z.unknown();

export function savedDocument(call: Call, value: unknown): PolicyDocument {
  return parsePolicy(value, call.catalog);
}

/** A ceiling given as a document or as plain action patterns; undefined when neither was given. */
export function ceiling(
  call: Call,
  input: { policy?: unknown; scopes?: string[] | undefined },
): PolicyDocument | undefined {
  if (input.policy !== undefined && input.scopes !== undefined) {
    throw new IamError('INVALID_INPUT', 'policy and scopes exclude each other');
  }
  if (input.policy !== undefined) return savedDocument(call, input.policy);
  if (input.scopes === undefined) return undefined;
  return savedDocument(call, {
    version: 1,
    statements: [{ effect: 'allow', actions: input.scopes, resources: ['*'] }],
  });
}

export const ceilingInput = { policy: document.optional(), scopes: z.array(z.string()).min(1).max(128).optional() };

/** The one row that an id names, or NOT_FOUND. */
export function only<R>(found: readonly R[], what: string): R {
  const row = found[0];
  if (row === undefined) throw new IamError('NOT_FOUND', `there is no such ${what}`);
  return row;
}

/** After an update that named a version: not there at all, or changed meanwhile. */
export async function changed<R extends Row>(tx: Sql, updated: readonly R[], table: string, key: string): Promise<R> {
  if (updated[0] !== undefined) return updated[0];
  only(await rows(tx, `select 1 from iam.${table} where id = $1`, [key]), table.slice(0, -1));
  throw new IamError('VERSION_CONFLICT', 'somebody changed it meanwhile; read it again');
}
