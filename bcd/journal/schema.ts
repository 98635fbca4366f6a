/** Tables of the journal's SQLite file. `user_version` counts the steps applied. */
import type { DatabaseSync } from 'node:sqlite';
import { problem } from '#core/kernel/errors.ts';

const STEPS: readonly string[] = [
  `create table facts (key text primary key, value text not null) strict;
   create table commands (
     seq integer primary key,
     id text not null,
     kind text not null,
     lane text not null,
     payload text not null,
     accepted_at text not null,
     not_after text,
     state text not null check (state in ('accepted', 'running', 'done')),
     result text
   ) strict;
   create index commands_open on commands (lane, seq) where state <> 'done';
   create table outbox (
     n integer primary key autoincrement,
     kind text not null check (kind in ('result', 'event')),
     seq integer,
     body text not null
   ) strict;
   create index outbox_results on outbox (seq) where kind = 'result';`,
];

export function migrateJournal(db: DatabaseSync): void {
  const { user_version: version } = db.prepare('pragma user_version').get() as { user_version: number };
  if (version > STEPS.length) {
    throw problem('CONFLICT', `the journal was written by a newer bcd (schema ${version}, known ${STEPS.length})`);
  }
  for (let step = version; step < STEPS.length; step++) {
    db.exec(`begin immediate; ${STEPS[step]} pragma user_version = ${step + 1}; commit;`);
  }
}
