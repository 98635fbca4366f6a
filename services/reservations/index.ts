/** Reservations: the only door to this folder. */
import type { reservationOperations } from '#core/reservations/contract.ts';
import type { Handlers } from '../context.ts';
import { create } from './admit.ts';
import { explain, get, list, release, renew } from './verbs.ts';

export { type Asked, fits, whyNot } from './admit.ts';
export { type StepTaken, step } from './reconcile.ts';
export { create, explain, get, list, release, renew };

export const handlers: Handlers<typeof reservationOperations> = {
  'reservations.create': create,
  'reservations.get': get,
  'reservations.list': list,
  'reservations.renew': renew,
  'reservations.release': release,
  'reservations.explain': explain,
};
