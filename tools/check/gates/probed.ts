/** Gates that ask a probe of the tree they judge. */
import type { Gate } from '../gate.ts';
import { runProbe } from '../probe.ts';

export const constraints: Gate = {
  name: 'constraints',
  why: 'A constraint that nobody translates answers "unexpected error" to somebody who could have mended the request.',
  run: (root) => runProbe(root, 'constraints'),
};

export const operations: Gate = {
  name: 'operations',
  why: 'An operation that one part does not know is a promise that the product does not keep.',
  run: (root) => runProbe(root, 'operations'),
};

export const docs: Gate = {
  name: 'docs',
  why: 'A page that names what is not there costs each reader an hour and their trust.',
  run: (root) => runProbe(root, 'docs'),
};
