/**
 * The embedded engine: from a token to a snapshot, from a snapshot to a decision. Snapshots are kept per isolate for at
 * most two seconds and a thousand entries, as plain values (a promise may not cross requests in workerd).
 *
 * What a stale snapshot can do: allow a read for up to two seconds after a change. It never denies for longer than the
 * change took (a denial is decided again on a fresh one), and never lets a write through (the write checks the epoch).
 */
import type { Catalog } from '#core/iam/catalog.ts';
import { decide, type FullDecision, preliminary, type TenantStatus } from '#core/iam/decide.ts';
import { WORK_BUDGET } from '#core/iam/evaluate.ts';
import { IamError } from '#core/iam/iam-error.ts';
import type { AuthzResource, RequestMeta } from '#core/iam/port.ts';
import { contextOf, factsOf, overridesPolicies, type Snapshot, stands } from '#core/iam/snapshot.ts';
import { parseToken } from '#core/iam/token.ts';
import type { Database } from '#core/kernel/database.ts';
import type { Clock } from '#core/kernel/time.ts';
import { type AuditRecord, audit, rows } from './storage.ts';

const KEPT_MS = 2_000;
const KEPT_MAX = 1_000;
const ASKED_MAX = 256;

export interface EngineOptions {
  readonly clock: Clock;
  readonly catalog: Catalog;
}

interface Kept {
  readonly snapshot: Snapshot;
  /** The isolate's clock when it arrived. */
  readonly at: number;
}

/** One credential in use by one request. */
export class Session {
  readonly hash: string;
  kept: Kept;
  /** Read by this very request, so that a denial need not be doubted. */
  fresh: boolean;
  readonly asked = new Set<string>();
  constructor(hash: string, kept: Kept, fresh: boolean) {
    this.hash = hash;
    this.kept = kept;
    this.fresh = fresh;
  }
  get snapshot(): Snapshot {
    return this.kept.snapshot;
  }
  /** Whoever prints a caller prints no credential. */
  toJSON(): string {
    return 'session';
  }
}

export interface Check {
  readonly action: string;
  readonly resource: Omit<AuthzResource, 'type'> & { readonly type: string };
}

export interface Answer {
  readonly decision: FullDecision;
  readonly epoch: number;
}

export function actorOf(s: Snapshot): Pick<AuditRecord, 'actorId' | 'sessionContext'> {
  const { session, identity, delegation } = s;
  return {
    actorId: identity.id,
    sessionContext: {
      sessionId: session.id,
      kind: session.kind,
      agentId: delegation?.agent.id,
      delegationId: delegation?.id,
    },
  };
}

export class Engine {
  readonly db: Database;
  readonly catalog: Catalog;
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept>();

  constructor(db: Database, options: EngineOptions) {
    this.db = db;
    this.catalog = options.catalog;
    this.#clock = options.clock;
  }

  /** Throws UNAUTHENTICATED. `fresh` passes by what is kept. */
  async open(token: string | undefined, fresh = false): Promise<Session> {
    const parsed = token === undefined ? undefined : parseToken(token);
    if (parsed === undefined) throw new IamError('UNAUTHENTICATED', 'the credential is missing or malformed');
    const kept = fresh ? undefined : this.#recent(parsed.hash);
    const session = new Session(parsed.hash, kept ?? (await this.#read(parsed.hash)), kept === undefined);
    if (session.snapshot.session.kind !== parsed.session)
      throw new IamError('UNAUTHENTICATED', 'the credential is not known');
    this.#mustStand(session);
    return session;
  }

  /** The database's time, as this isolate counted on from the snapshot. */
  now(session: Session): number {
    return session.snapshot.now + Math.max(0, this.#clock.now() - session.kept.at);
  }

  async refresh(session: Session): Promise<void> {
    session.kept = await this.#read(session.hash);
    session.fresh = true;
    this.#mustStand(session);
  }

  /**
   * Decides in memory. The same question asked twice by one request means that the first answer did not hold (the write
   * found a newer epoch), so it is read afresh.
   */
  async ask(session: Session, checks: readonly Check[], meta: RequestMeta): Promise<Answer[]> {
    const repeated = checks.some((check) => session.asked.has(questionKey(check)));
    if (session.asked.size > ASKED_MAX) session.asked.clear();
    for (const check of checks) session.asked.add(questionKey(check));
    if (repeated || this.#clock.now() - session.kept.at >= KEPT_MS) await this.refresh(session);
    else this.#mustStand(session);
    let answers = await this.#decideAll(session, checks, meta);
    if (!session.fresh && answers.some((answer) => !answer.decision.allowed)) {
      await this.refresh(session);
      answers = await this.#decideAll(session, checks, meta);
    }
    await this.#record(session, checks, answers, meta);
    return answers;
  }

  /** The tenant's and the action's own questions, before a resource is looked at. Audits a denial. */
  async preliminary(
    session: Session,
    tenantId: string,
    check: Check,
    meta: RequestMeta,
  ): Promise<FullDecision | undefined> {
    const facts = await this.#facts(session, tenantId);
    const early = preliminary(check.action, facts);
    if (early !== undefined) await this.#record(session, [check], [{ decision: early, epoch: 0 }], meta);
    return early;
  }

  async #decideAll(session: Session, checks: readonly Check[], meta: RequestMeta): Promise<Answer[]> {
    const answers: Answer[] = [];
    // One for the whole batch: fifty questions cost no more than the dearest single one may.
    const budget = { left: WORK_BUDGET };
    for (const { action, resource } of checks) {
      const facts = await this.#facts(session, resource.tenantId);
      const context = contextOf(session.snapshot, this.now(session), resource, meta);
      const decision = decide({ action, resource: `${resource.type}/${resource.id}`, context }, facts, budget);
      answers.push({ decision, epoch: session.snapshot.epoch });
    }
    return answers;
  }

  async #facts(session: Session, tenantId: string) {
    const own = session.snapshot.session.tenantId === tenantId;
    const chain = own ? undefined : await this.#chain(tenantId);
    return factsOf(session.snapshot, this.now(session), this.catalog, tenantId, chain);
  }

  async #chain(tenantId: string): Promise<TenantStatus[]> {
    const found = await rows<{ status: TenantStatus }>(
      this.db,
      'select status from iam.tenant_chain($1) order by depth',
      [tenantId],
    );
    if (found.length === 0) throw new IamError('NOT_FOUND', 'there is no such tenant');
    return found.map((row) => row.status);
  }

  /** Denials, and whatever only the root override allowed. */
  async #record(
    session: Session,
    checks: readonly Check[],
    answers: readonly Answer[],
    meta: RequestMeta,
  ): Promise<void> {
    const records = answers.flatMap(({ decision }, i): AuditRecord[] => {
      if (decision.allowed && decision.reason !== 'ROOT_OVERRIDE') return [];
      const { action, resource } = checks[i]!;
      return [
        {
          ...actorOf(session.snapshot),
          tenantId: resource.tenantId,
          action,
          resourceId: resource.id,
          outcome: decision.allowed ? 'allow' : 'deny',
          ...(decision.allowed ? { rootOverride: true } : {}),
          metadata: { reason: decision.reason, resourceType: resource.type, requestId: meta.requestId },
        },
      ];
    });
    await audit(this.db, records);
  }

  #mustStand(session: Session): void {
    if (stands(session.snapshot, this.now(session))) return;
    this.#kept.delete(session.hash);
    throw new IamError('UNAUTHENTICATED', 'the credential has expired or was revoked');
  }

  #recent(hash: string): Kept | undefined {
    const kept = this.#kept.get(hash);
    if (kept === undefined) return undefined;
    const age = this.#clock.now() - kept.at;
    return age >= 0 && age < KEPT_MS ? kept : undefined;
  }

  async #read(hash: string): Promise<Kept> {
    const at = this.#clock.now();
    const [row] = await rows<{ snapshot: Snapshot | null }>(this.db, 'select iam.snapshot($1) as snapshot', [hash]);
    // An unknown credential is not remembered: one made a moment later must work.
    if (row?.snapshot == null) throw new IamError('UNAUTHENTICATED', 'the credential is not known');
    const kept = { snapshot: row.snapshot, at };
    this.#kept.delete(hash);
    this.#kept.set(hash, kept);
    if (this.#kept.size > KEPT_MAX) this.#kept.delete(this.#kept.keys().next().value!);
    return kept;
  }
}

function questionKey({ action, resource }: Check): string {
  return `${action}|${resource.tenantId}|${resource.type}/${resource.id}`;
}

/** Whether the session may act in a tenant at all, for questions that no policy is asked about. */
export function actsIn(session: Session, tenantId: string): boolean {
  return session.snapshot.session.tenantId === tenantId || overridesPolicies(session.snapshot);
}
