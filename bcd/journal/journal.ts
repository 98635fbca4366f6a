/**
 * The daemon's memory across kill -9 and power cuts: which commands it accepted and how far each came, and the results
 * and events that the control plane has not acknowledged. Rules:
 *  - a command's row is durable before its side effect starts, its result before anybody hears of it;
 *  - a command found `running` at start is answered as interrupted, never run again: nobody knows how far it came;
 *  - results are never dropped (when too many wait, new commands are refused); events are, oldest first, and counted;
 *  - the file lost or unreadable means a new `id`, by which the control plane learns that everything in flight is gone.
 */
import { randomUUID } from 'node:crypto';
import { chmodSync, closeSync, mkdirSync, openSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type SQLOutputValue } from 'node:sqlite';
import type { Json } from '#core/kernel/canonical-json.ts';
import { problem } from '#core/kernel/errors.ts';
import type { Clock, Instant } from '#core/kernel/time.ts';
import { fromMillis } from '#core/kernel/time.ts';
import { migrateJournal } from './schema.ts';

export interface JournalCommand {
  /** Given by the control plane, rising per node. */
  readonly seq: number;
  readonly id: string;
  readonly kind: string;
  readonly lane: string;
  readonly payload: Json;
  readonly notAfter?: Instant;
}

export type CommandState = 'accepted' | 'running' | 'done';
export interface JournalRecord extends JournalCommand {
  readonly state: CommandState;
  readonly acceptedAt: Instant;
  readonly result?: Json;
}

export type AcceptAnswer =
  | { readonly kind: 'accepted' }
  /** It is here already; `result` when it is done. Nothing is to be run. */
  | { readonly kind: 'duplicate'; readonly state: CommandState; readonly result?: Json }
  /** `full`: too much waits for acknowledgement; `forgotten`: older than what is remembered; `conflict`: same seq, other command. */
  | { readonly kind: 'refused'; readonly reason: 'full' | 'forgotten' | 'conflict' };

export interface OutboxEntry {
  /** Rises by one per entry; the control plane acknowledges up to it. */
  readonly n: number;
  readonly kind: 'result' | 'event';
  readonly seq?: number;
  readonly body: Json;
}

export interface JournalLimits {
  /** Commands accepted and not done. */
  readonly openCommands: number;
  /** Done commands that stay, so that a late duplicate is recognized. */
  readonly doneCommands: number;
  /** Results not yet acknowledged. */
  readonly results: number;
  /** Events not yet acknowledged; the oldest is dropped for a new one. */
  readonly events: number;
  /** Characters of one payload, result or event. */
  readonly bodyLength: number;
}

export const DEFAULT_LIMITS: JournalLimits = {
  openCommands: 256,
  doneCommands: 1024,
  results: 1024,
  events: 4096,
  bodyLength: 1_000_000,
};

export interface JournalOptions {
  readonly clock: Clock;
  readonly limits?: Partial<JournalLimits>;
  /** The result that a command interrupted by a crash is answered with. */
  readonly interrupted?: Json;
}

type SqlRow = Record<string, SQLOutputValue>;

export class Journal {
  readonly id: string;
  /** Commands that a crash interrupted, found at this opening. */
  readonly interrupted: readonly number[];
  private readonly db: DatabaseSync;
  private readonly clock: Clock;
  private readonly limits: JournalLimits;

  /** Use `openJournal`. */
  constructor(db: DatabaseSync, options: JournalOptions) {
    this.db = db;
    this.clock = options.clock;
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.id = this.atomically(() => {
      const known = this.fact('journal_id');
      if (known !== undefined) return known;
      const id = randomUUID();
      this.setFact('journal_id', id);
      return id;
    });
    this.interrupted = this.atomically(() => {
      const rows = this.all(`select seq from commands where state = 'running' order by seq`);
      const seqs = rows.map((r) => Number(r['seq']));
      for (const seq of seqs) this.settle(seq, options.interrupted ?? { outcome: 'interrupted' });
      return seqs;
    });
  }

  accept(command: JournalCommand): AcceptAnswer {
    const payload = this.body(command.payload, 'payload');
    return this.atomically((): AcceptAnswer => {
      const known = this.one('select id, kind, state, result from commands where seq = ?', command.seq);
      if (known !== undefined) {
        if (known['id'] !== command.id || known['kind'] !== command.kind) {
          return { kind: 'refused', reason: 'conflict' };
        }
        const result = known['result'] === null ? {} : { result: JSON.parse(String(known['result'])) as Json };
        return { kind: 'duplicate', state: known['state'] as CommandState, ...result };
      }
      if (command.seq <= Number(this.fact('forgotten_through') ?? 0)) return { kind: 'refused', reason: 'forgotten' };
      const open = this.count(`select count(*) as c from commands where state <> 'done'`);
      const results = this.count(`select count(*) as c from outbox where kind = 'result'`);
      // Every open command will need room for its result.
      if (open >= this.limits.openCommands || open + results >= this.limits.results) {
        return { kind: 'refused', reason: 'full' };
      }
      this.run(
        `insert into commands (seq, id, kind, lane, payload, accepted_at, not_after, state) values (?, ?, ?, ?, ?, ?, ?, 'accepted')`,
        command.seq,
        command.id,
        command.kind,
        command.lane,
        payload,
        fromMillis(this.clock.now()),
        command.notAfter ?? null,
      );
      return { kind: 'accepted' };
    });
  }

  /** Marks that the side effect starts now. False: somebody began it already, so do not run it. */
  begin(seq: number): boolean {
    return Number(this.run(`update commands set state = 'running' where seq = ? and state = 'accepted'`, seq)) === 1;
  }

  /** Stores the result and queues it for the control plane, in one commit. False: it was done already. */
  finish(seq: number, result: Json): boolean {
    return this.atomically(() => this.settle(seq, result));
  }

  /** Accepted and never begun, oldest first: what to run after a restart. */
  runnable(lane?: string): JournalRecord[] {
    const where = lane === undefined ? '' : 'and lane = ?';
    const rows = this.all(
      `select * from commands where state = 'accepted' ${where} order by seq`,
      ...(lane === undefined ? [] : [lane]),
    );
    return rows.map(toRecord);
  }

  find(seq: number): JournalRecord | undefined {
    const row = this.one('select * from commands where seq = ?', seq);
    return row === undefined ? undefined : toRecord(row);
  }

  /** Queues an event. When too many wait, the oldest events go; `droppedEvents()` counts them. */
  recordEvent(body: Json): number {
    const text = this.body(body, 'event');
    return this.atomically(() => {
      const waiting = this.count(`select count(*) as c from outbox where kind = 'event'`);
      const over = waiting + 1 - this.limits.events;
      if (over > 0) {
        this.run(`delete from outbox where n in (select n from outbox where kind = 'event' order by n limit ?)`, over);
        this.setFact('dropped_events', String(this.droppedEvents() + over));
      }
      return this.queue('event', null, text);
    });
  }

  droppedEvents(): number {
    return Number(this.fact('dropped_events') ?? 0);
  }

  /** What the control plane has not acknowledged, oldest first, behind entry `after`. */
  unacknowledged(limit: number, after = 0): OutboxEntry[] {
    return this.all('select n, kind, seq, body from outbox where n > ? order by n limit ?', after, limit).map((r) => ({
      n: Number(r['n']),
      kind: r['kind'] as OutboxEntry['kind'],
      ...(r['seq'] === null ? {} : { seq: Number(r['seq']) }),
      body: JSON.parse(String(r['body'])) as Json,
    }));
  }

  /** The control plane has stored everything up to entry `n`. Acknowledging twice, or more than there is, is harmless. */
  acknowledge(n: number): void {
    this.atomically(() => {
      this.run('delete from outbox where n <= ?', n);
      const forget = this.all(
        `select seq from commands where state = 'done'
           and not exists (select 1 from outbox o where o.kind = 'result' and o.seq = commands.seq)
         order by seq desc limit -1 offset ?`,
        this.limits.doneCommands,
      ).map((r) => Number(r['seq']));
      if (forget.length === 0) return;
      for (const seq of forget) this.run('delete from commands where seq = ?', seq);
      const through = Math.max(Number(this.fact('forgotten_through') ?? 0), ...forget);
      this.setFact('forgotten_through', String(through));
    });
  }

  /** A small fact that must outlive a restart, such as the last NodeSpec or the acknowledged section hashes. */
  remember(key: string, value: Json): void {
    this.setFact(`memo:${key}`, this.body(value, key));
  }

  recall(key: string): Json | undefined {
    const text = this.fact(`memo:${key}`);
    return text === undefined ? undefined : (JSON.parse(text) as Json);
  }

  stats(): { open: number; unacknowledged: number; droppedEvents: number } {
    return {
      open: this.count(`select count(*) as c from commands where state <> 'done'`),
      unacknowledged: this.count('select count(*) as c from outbox'),
      droppedEvents: this.droppedEvents(),
    };
  }

  close(): void {
    if (this.db.isOpen) this.db.close();
  }

  private settle(seq: number, result: Json): boolean {
    const text = this.body(result, 'result');
    const changed = this.run(
      `update commands set state = 'done', result = ? where seq = ? and state <> 'done'`,
      text,
      seq,
    );
    if (Number(changed) !== 1) return false;
    this.queue('result', seq, text);
    return true;
  }

  private queue(kind: OutboxEntry['kind'], seq: number | null, text: string): number {
    const row = this.one('insert into outbox (kind, seq, body) values (?, ?, ?) returning n', kind, seq, text);
    return Number(row?.['n']);
  }

  private body(value: Json, field: string): string {
    const text = JSON.stringify(value);
    if (text.length <= this.limits.bodyLength) return text;
    throw problem('PAYLOAD_TOO_LARGE', `${field} is larger than the journal takes`, {
      limitBytes: this.limits.bodyLength,
    });
  }

  private fact(key: string): string | undefined {
    const row = this.one('select value from facts where key = ?', key);
    return row === undefined ? undefined : String(row['value']);
  }
  private setFact(key: string, value: string): void {
    this.run(
      'insert into facts (key, value) values (?, ?) on conflict (key) do update set value = excluded.value',
      key,
      value,
    );
  }
  private one(sql: string, ...params: (string | number | null)[]): SqlRow | undefined {
    return this.db.prepare(sql).get(...params);
  }
  private all(sql: string, ...params: (string | number | null)[]): SqlRow[] {
    return this.db.prepare(sql).all(...params);
  }
  private count(sql: string): number {
    return Number(this.one(sql)?.['c'] ?? 0);
  }
  private run(sql: string, ...params: (string | number | null)[]): number | bigint {
    return this.db.prepare(sql).run(...params).changes;
  }
  private atomically<T>(fn: () => T): T {
    this.db.exec('begin immediate');
    try {
      const value = fn();
      this.db.exec('commit');
      return value;
    } catch (error) {
      if (this.db.isTransaction) this.db.exec('rollback');
      throw error;
    }
  }
}

function toRecord(row: SqlRow): JournalRecord {
  return {
    seq: Number(row['seq']),
    id: String(row['id']),
    kind: String(row['kind']),
    lane: String(row['lane']),
    payload: JSON.parse(String(row['payload'])) as Json,
    acceptedAt: String(row['accepted_at']),
    state: row['state'] as CommandState,
    ...(row['not_after'] === null ? {} : { notAfter: String(row['not_after']) }),
    ...(row['result'] === null ? {} : { result: JSON.parse(String(row['result'])) as Json }),
  };
}

/** SQLITE_CORRUPT and SQLITE_NOTADB: the file is there and is no journal any more. */
const UNREADABLE = new Set([11, 26]);

/**
 * Opens or makes the journal at `path` (`:memory:` for one that dies with the process). A file that cannot be read is
 * set aside as `<path>.unreadable` and a new journal begins.
 */
export function openJournal(path: string, options: JournalOptions): Journal {
  if (path === ':memory:') return tryOpen(path, options);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  closeSync(openSync(path, 'a', 0o600));
  chmodSync(path, 0o600);
  try {
    return tryOpen(path, options);
  } catch (error) {
    if (!UNREADABLE.has((error as { errcode?: number }).errcode ?? 0)) throw error;
    renameSync(path, `${path}.unreadable`);
    for (const suffix of ['-wal', '-shm']) rmSync(`${path}${suffix}`, { force: true });
    closeSync(openSync(path, 'a', 0o600));
    return tryOpen(path, options);
  }
}

function tryOpen(path: string, options: JournalOptions): Journal {
  const db = new DatabaseSync(path, { timeout: 5000 });
  try {
    // FULL: a commit is on the disk when it returns, also in WAL mode.
    db.exec('pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on;');
    migrateJournal(db);
    return new Journal(db, options);
  } catch (error) {
    db.close();
    throw error;
  }
}
