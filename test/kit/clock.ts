/** The control plane's clock in a test's own hands: it stands still until the test moves it. */
import type { Instant } from '#core/kernel/time.ts';
import type { PgDatabase } from '#plugins/database/node-postgres.ts';

export interface TestClock {
  now(): Promise<Instant>;
  /** So many seconds go by, as a control plane that runs all the while sees them: whoever watches the clock kept up. */
  pass(seconds: number): Promise<Instant>;
  /** The clock stands elsewhere from one moment to the next; negative: it goes back. */
  jump(seconds: number): Promise<Instant>;
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
  const jump = async (seconds: number) => {
    await db.query('update test_clock set at = at + make_interval(secs => $1)', [seconds]);
    return now();
  };
  return {
    now,
    jump,
    async pass(seconds) {
      const at = await jump(seconds);
      await db.query(
        'update clock_watch set trusted_at = compute_now(), seen_at = compute_now() where trusted_at is not null',
      );
      return at;
    },
  };
}
