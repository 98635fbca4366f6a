/** The control plane's clock in a test's own hands: it stands still until the test moves it. */
import type { Instant } from '#core/kernel/time.ts';
import type { PgDatabase } from '#plugins/database/node-postgres.ts';

export interface TestClock {
  now(): Promise<Instant>;
  /** So many seconds go by. */
  pass(seconds: number): Promise<Instant>;
}

/** Replaces the body of compute_now() in this database, as the simulator does. Starts at the present. */
export async function takeClock(db: PgDatabase): Promise<TestClock> {
  await db.transaction((tx) =>
    tx.script(`
      create table test_clock (at timestamptz not null);
      insert into test_clock values (date_trunc('second', compute_now()));
      create or replace function compute_now() returns timestamptz language sql stable parallel safe
        as $$ select at from test_clock $$;`),
  );
  const now = async () => (await db.query<{ now: Instant }>('select compute_now() as now'))[0]!.now;
  return {
    now,
    async pass(seconds) {
      await db.query('update test_clock set at = at + make_interval(secs => $1)', [seconds]);
      return now();
    },
  };
}
