import { type DeviceWant, leadClass, wantsByClass } from '#core/placement/place.ts';
import type { NarrowWant } from './queries.ts';

/** What SQL can narrow by: attributes that must equal a value. The lead class first. */
export function narrowed(wants: readonly DeviceWant[]): NarrowWant[] {
  const lead = leadClass(wants);
  return Object.entries(wantsByClass(wants))
    .map(([deviceClass, count]) => {
      const parts = wants.filter((w) => w.class === deviceClass);
      const equals = parts.length > 1 ? [] : (parts[0]?.selectors ?? []).filter((s) => s.op === 'equals');
      return { class: deviceClass, count, equals: Object.fromEntries(equals.map((s) => [s.attribute, s.value])) };
    })
    .sort((a, b) => Number(b.class === lead) - Number(a.class === lead) || (a.class < b.class ? -1 : 1));
}
