/** The clock under watch: whether deadlines go by it at the moment, and an operator's word that it is right. */
import type { clockOperations } from '#core/clock/contract.ts';
import type { Database } from '#core/kernel/database.ts';
import type { Log } from '#core/kernel/log.ts';
import type { Output } from '#core/kernel/operations.ts';
import { read } from '#db/mutate.ts';
import type { Handlers } from '../context.ts';
import { performOnce, requirePlatform } from '../verbs.ts';

export interface ClockSettings {
  /** A step of more than so many seconds between two looks is a jump. At least 60. */
  readonly jumpSeconds: number;
  /** After a jump the clock must go steadily for so long at least before deadlines go by it again. */
  readonly settleSeconds: number;
}

export const CLOCK_SETTINGS: ClockSettings = { jumpSeconds: 300, settleSeconds: 300 };

interface Look extends Record<string, unknown> {
  readonly kind: 'steady' | 'jumped' | 'away' | 'returned' | 'accepted';
}

/** One look, at every turn of every shard. `tenant` is the platform's own: jumps are told to it as events. */
export async function watchClock(
  db: Database,
  log: Log,
  tenant: string,
  settings: ClockSettings = CLOCK_SETTINGS,
): Promise<void> {
  const [row] = await read<{ look: Look }>(db, 'select clock_look($1, $2, $3) as look', [
    tenant,
    settings.jumpSeconds,
    settings.settleSeconds,
  ]);
  const { kind, ...about } = row!.look;
  if (kind === 'jumped') log.error(about, 'the clock jumped: nothing expires until it is back, or settled where it is');
  if (kind === 'returned') log.warn(about, 'the clock is back: deadlines go on');
  if (kind === 'accepted') log.warn(about, 'the clock settled: deadlines go on by it');
}

type View = Output<(typeof clockOperations)['clock.get']>;

async function view(db: Pick<Database, 'query'>): Promise<View> {
  const [row] = await read<{ view: View }>(
    db,
    `select jsonb_strip_nulls(jsonb_build_object('now', instant(compute_now()), 'steadyNow', instant(steady_now()),
       'steady', compute_now() = steady_now() and away_since is null, 'trustedAt', instant(trusted_at),
       'awaySince', instant(away_since), 'settlesAt', instant(clock_settles_at(w)),
       'jumpSeconds', jump_seconds, 'settleSeconds', settle_seconds)) as view from clock_watch w`,
  );
  return row!.view;
}

const onTheClock = { type: 'compute-work', id: 'clock' } as const;

export const handlers: Handlers<typeof clockOperations> = {
  async 'clock.get'(ctx) {
    await requirePlatform(ctx, 'compute:clock:get', onTheClock);
    return view(ctx.db);
  },
  async 'clock.acknowledge'(ctx, input) {
    const decision = await requirePlatform(ctx, 'compute:clock:acknowledge', onTheClock);
    return performOnce(ctx, 'clock.acknowledge', decision, input, async (tx) => {
      const before = await view(tx);
      await tx.query('select clock_acknowledge()');
      const { tenantId } = ctx.caller;
      if (!before.steady) {
        tx.emit({ type: 'clock.acknowledged', tenantId, kind: 'clock', id: 'clock', data: { before } });
      }
      tx.audit({ tenantId, action: 'compute:clock:acknowledge', ...onTheClock, data: { before } });
      return view(tx);
    });
  },
};
