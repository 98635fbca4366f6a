/** Reservations: the only door to this folder. */
import { create } from './admit.ts';
import { explain, get, release, renew } from './verbs.ts';

export { type StepTaken, step } from './reconcile.ts';
export { create, explain, get, release, renew };
