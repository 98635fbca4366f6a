/**
 * The one way to change something: a transaction that carries the change whole. Whatever goes with it (event, wake-up,
 * authz row, audit record) is gathered while the closure runs and flushed by one statement before the same COMMIT.
 *
 * The closure may run again after a serialization failure, a deadlock or an exclusion conflict, so it touches nothing
 * outside `tx` and awaits nothing else: a network call with a transaction open would hold locks for its whole length.
 */

import type { Json } from '#core/kernel/canonical-json.ts';
import { type Database, type Row, type Sql, SqlError, type SqlValue } from '#core/kernel/database.ts';
import { type Problem, problem } from '#core/kernel/errors.ts';
import { allowedEvents, type StateTable } from '#core/kernel/state-table.ts';
import { isContention, sqlProblem } from './sql-problem.ts';

const RUNS_MAX = 5;

/** Who caused a change and how it was admitted; stored with the audit record. */
export interface AdmissionContext {
  readonly identityId?: string;
  readonly sessionKind?: string;
  readonly sessionId?: string;
  readonly agentId?: string;
  readonly delegationId?: string;
  readonly requestId?: string;
  readonly traceparent?: string;
  /** A reconciler's or the gateway's name, where no person asked. */
  readonly system?: string;
}

export interface MutationContext {
  readonly db: Database;
  /** `api`, or a reconciler's name; stands in the state history. */
  readonly actor: string;
  readonly admission: AdmissionContext;
  /** Version of the policies that allowed it, where IAM can say. */
  readonly policyEpoch?: number;
  /** The lease under which this is written. */
  readonly fence?: { readonly name: string; readonly epoch: number };
  /** Told after the commit what was woken. A lost poke only costs time. */
  readonly poke?: (wakes: readonly { kind: string; key: string }[]) => void;
}

export interface EventDraft {
  readonly type: string;
  readonly tenantId: string;
  readonly kind: string;
  readonly id: string;
  readonly data: Json;
}

export interface ProjectionRow {
  readonly type: `compute-${string}`;
  readonly id: string;
  readonly tenantId: string;
  readonly parentType?: string;
  readonly parentId?: string;
  readonly ownerId?: string;
  readonly attributes?: Json;
}

export interface AuditDraft {
  readonly tenantId: string;
  readonly action: string;
  readonly type: `compute-${string}`;
  readonly id: string;
  readonly data?: Json;
}

export interface Tx extends Sql {
  emit(event: EventDraft): void;
  wake(kind: string, key: string, notBefore?: string): void;
  project(row: ProjectionRow): void;
  unproject(type: `compute-${string}`, id: string): void;
  audit(record: AuditDraft): void;
  /** The only writer of a state column. Throws ILLEGAL_TRANSITION, NOT_FOUND, VERSION_CONFLICT. */
  transition<S extends string, E extends string>(
    table: StateTable<S, E>,
    id: string,
    event: NoInfer<E>,
    reason?: string,
    version?: number,
  ): Promise<{ from: S; to: S; version: number }>;
}

interface Flush {
  policyEpoch?: number;
  events: unknown[];
  wakes: { kind: string; key: string; notBefore?: string }[];
  projections: unknown[];
  audits: unknown[];
}

function recorder(sql: Sql, ctx: MutationContext, out: Flush): Tx {
  return {
    query: <R extends Row>(text: string, params?: readonly SqlValue[]) => sql.query<R>(text, params),
    emit: (e) => void out.events.push({ ...e, traceparent: ctx.admission.traceparent }),
    wake: (kind, key, notBefore) => void out.wakes.push({ kind, key, notBefore }),
    project: (row) => void out.projections.push(row),
    unproject: (type, id) => void out.projections.push({ type, id, gone: true }),
    audit: (a) =>
      void out.audits.push({
        ...a,
        outcome: ctx.admission.system === undefined ? 'allow' : 'system',
        context: ctx.admission,
      }),
    transition: async (table, id, event, reason, version) => {
      // The name comes from a state table of ours, never from outside.
      const text = `select from_state, to_state, version from transition_${table.name}($1, $2, $3, $4, $5)`;
      try {
        const [row] = await sql.query<{ from_state: never; to_state: never; version: number }>(text, [
          id,
          event,
          ctx.actor,
          reason ?? null,
          version ?? null,
        ]);
        return { from: row!.from_state, to: row!.to_state, version: row!.version };
      } catch (e) {
        throw illegalMove(e, table) ?? e;
      }
    },
  };
}

/** A refused move with what is possible instead, which only the table knows; undefined for any other fault. */
function illegalMove<S extends string, E extends string>(e: unknown, table: StateTable<S, E>): Problem | undefined {
  if (!(e instanceof SqlError) || e.sqlstate !== 'BC002') return undefined;
  const from = e.detail as S;
  return problem('ILLEGAL_TRANSITION', e.message, { from, event: e.hint ?? '', allowed: allowedEvents(table, from) });
}

/** Runs `fn` in a transaction. Throws a Problem, or PolicyChanged when the decision must be made again. */
export async function mutate<T>(ctx: MutationContext, fn: (tx: Tx) => Promise<T>): Promise<T> {
  for (let run = 1; ; run++) {
    const out: Flush = { events: [], wakes: [], projections: [], audits: [] };
    if (ctx.policyEpoch !== undefined) out.policyEpoch = ctx.policyEpoch;
    try {
      const result = await ctx.db.transaction(async (sql) => {
        if (ctx.fence !== undefined) await sql.query('select lease_fence($1, $2)', [ctx.fence.name, ctx.fence.epoch]);
        const value = await fn(recorder(sql, ctx, out));
        await sql.query('select kernel_flush($1)', [JSON.stringify(out)]);
        return value;
      });
      // Also for an event alone: deliveries and watchers wait for it.
      if (out.wakes.length + out.events.length > 0) ctx.poke?.(out.wakes.map(({ kind, key }) => ({ kind, key })));
      return result;
    } catch (e) {
      if (isContention(e) && run < RUNS_MAX) continue;
      throw sqlProblem(e);
    }
  }
}

/** A read. Same error mapping as mutate(). */
export async function read<R extends Row>(db: Sql, text: string, params?: readonly SqlValue[]): Promise<R[]> {
  try {
    return await db.query<R>(text, params);
  } catch (e) {
    throw sqlProblem(e);
  }
}
