/** The main job while the gateway, workerd and the daemons are killed in the middle of it, one at a time. */
import { expect, test } from 'vitest';
import { runDemo } from '#kit/demo.ts';

test('every kill is survived, nothing is promised twice and nothing untold', async () => {
  const { code, result, output } = await runDemo('--chaos');
  expect(result, output).toMatchObject({ ok: true, chaos: true, kills: 8 });
  expect(result['webhooks']).toBe(result['events']);
  expect(code).toBe(0);
}, 600_000);
