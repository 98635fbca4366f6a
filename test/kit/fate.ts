/**
 * Faults at the worst moment: a row of the table `fate` says what becomes of its own transaction in the very COMMIT,
 * `killed` (the connection dies) or a SQLSTATE (the COMMIT is refused). The sequence `runs` counts what a rollback would
 * hide, and raise_until(n, sqlstate) refuses every run before the n-th.
 */
import type { PgDatabase } from '#plugins/database/node-postgres.ts';

export async function installFate(db: PgDatabase): Promise<void> {
  await db.transaction((tx) =>
    tx.script(`
      create table fate (what text not null);
      create function meet_fate() returns trigger language plpgsql as $$
      begin
        if new.what = 'killed' then
          perform pg_terminate_backend(pg_backend_pid());
          perform pg_sleep(5);
        end if;
        raise exception 'refused at commit' using errcode = new.what;
      end $$;
      create constraint trigger fate_at_commit after insert on fate deferrable initially deferred
        for each row execute function meet_fate();
      create sequence runs;
      create function raise_until(p_run int, p_sqlstate text) returns void language plpgsql as $$
      begin
        if nextval('runs') < p_run then
          raise exception 'not yet' using errcode = p_sqlstate, constraint = 'device_bookings_no_overlap';
        end if;
      end $$;`),
  );
}
