/** What one admission spends inside Postgres, function by function, as Postgres itself times them. */
import type { PgDatabase } from '#plugins/database/node-postgres.ts';
import { type Arm, load } from './load.ts';

export interface ProfileRow {
  readonly function: string;
  readonly callsEach: number;
  /** Microseconds of one admission in the function itself, without those that it calls. */
  readonly selfUs: number;
}

/** Runs the arm a little longer with timing on; its figures do not count. */
export async function profileOf(
  arm: Arm & { readonly db: PgDatabase },
  o: { clients: number; seconds: number },
): Promise<ProfileRow[]> {
  const { db } = arm;
  // New settings of a database reach new connections: each of these sets its own.
  await Promise.all(Array.from({ length: o.clients * 4 }, () => db.query("set track_functions = 'all'")));
  await db.query('select pg_stat_reset()');
  const { operations } = await load(arm, { clients: o.clients, seconds: Math.min(o.seconds, 3) });
  await Promise.all(Array.from({ length: o.clients * 4 }, () => db.query('select pg_stat_force_next_flush()')));
  const rows = await db.query<{ name: string; calls: number; self: number }>(
    `select funcname as name, calls::float8 as calls, self_time as self from pg_stat_user_functions order by self_time desc limit 20`,
  );
  return rows.map((r) => ({
    function: r.name,
    callsEach: Number((r.calls / operations).toFixed(2)),
    selfUs: Number(((r.self * 1000) / operations).toFixed(1)),
  }));
}
