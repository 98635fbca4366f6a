/** The clock of the control plane: whether deadlines go by it. For operators. */
import { z } from '@hono/zod-openapi';
import { operation } from '../kernel/operations.ts';
import { instant } from '../kernel/schemas.ts';

export const ClockState = z
  .object({
    now: instant.meta({ description: 'What the clock says' }),
    steadyNow: instant.meta({ description: 'What deadlines go by; stands still after a jump' }),
    steady: z.boolean().meta({ description: 'Whether the two go together' }),
    trustedAt: instant.optional().meta({ description: 'Last reading that deadlines went by' }),
    awaySince: instant.optional().meta({ description: 'Reading with which the clock came where it stands' }),
    settlesAt: instant.optional().meta({ description: 'When it is believed, if it goes steadily until then' }),
    jumpSeconds: z.number().int().meta({ description: 'A step of more than so many seconds is a jump' }),
    settleSeconds: z.number().int().meta({ description: 'Shortest time of going steadily before it is believed' }),
  })
  .meta({ id: 'ClockState' });

const iam = { resource: 'compute-work', on: 'collection', rootOnly: true } as const;

export const clockOperations = {
  'clock.get': operation({
    name: 'clock.get',
    method: 'get',
    path: '/v1/clock',
    output: ClockState,
    successStatus: 200,
    iam: { action: 'compute:clock:get', ...iam },
    errors: [],
    idempotent: false,
    help: 'Show whether deadlines go by the clock (operators of the platform only)',
  }),
  'clock.acknowledge': operation({
    name: 'clock.acknowledge',
    method: 'post',
    path: '/v1/clock/acknowledge',
    output: ClockState,
    successStatus: 200,
    iam: { action: 'compute:clock:acknowledge', ...iam },
    errors: [],
    idempotent: true,
    help: 'Say that the clock is right after a jump, so that deadlines go on (operators of the platform only)',
  }),
} as const;
