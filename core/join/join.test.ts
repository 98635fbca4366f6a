import { describe, expect, test } from 'vitest';
import { newId } from '../kernel/ids.ts';
import { addSeconds, toMillis } from '../kernel/time.ts';
import { fromBase64, fromPem, toBase64, toPem } from './bytes.ts';
import { LIFETIME_SECONDS, renewAt, validityOf } from './certificate-policy.ts';
import { JoinRequest, parseEvidence } from './evidence.ts';
import { parseSpiffeId, spiffeId } from './spiffe.ts';
import { equalSecrets, makeJoinToken, parseJoinToken } from './token.ts';

describe('join token', () => {
  test('reads back to its id and the hash of its secret', async () => {
    const made = makeJoinToken();
    expect(made.token).toMatch(/^bcjt_[0-9a-z]{26}\.[A-Za-z0-9_-]{43}$/);
    expect(parseJoinToken(made.token)).toEqual({ id: made.id, secretHash: made.secretHash });
    expect(made.token).not.toContain(made.secretHash);
  });
  test('another secret has another hash', async () => {
    const [a, b] = [makeJoinToken(), makeJoinToken()];
    const forged = parseJoinToken(`${a.id}.${b.token.split('.')[1]}`);
    expect(forged?.id).toBe(a.id);
    expect(equalSecrets(forged!.secretHash, a.secretHash)).toBe(false);
  });
  test.each([
    '',
    'bcjt_x.y',
    'node_01h455vb4pex5vsknk084sn02q.AAAA',
    '.',
    'bcjt_01h455vb4pex5vsknk084sn02q',
    `bcjt_01h455vb4pex5vsknk084sn02q.${'a'.repeat(42)}`,
    `bcjt_01h455vb4pex5vsknk084sn02q.${'a'.repeat(44)}`,
    `bcjt_01h455vb4pex5vsknk084sn02q.${'a'.repeat(42)}/`,
  ])('%j is none', async (text) => {
    expect(parseJoinToken(text)).toBeUndefined();
  });
});

describe('SPIFFE ID', () => {
  const name = { trustDomain: 'fleet.example', siteId: newId('site'), nodeId: newId('node') };
  test('reads back', () => {
    expect(parseSpiffeId(spiffeId(name))).toEqual(name);
  });
  test.each([
    (u: string) => `${u}/`,
    (u: string) => `${u}?x=1`,
    (u: string) => u.replace('spiffe:', 'https:'),
    (u: string) => u.replace('/node/', '/nodes/'),
    (u: string) => u.replace(name.nodeId, newId('device')),
    (u: string) => u.replace('fleet.example', 'Fleet.Example'),
    (u: string) => u.replace('fleet.example', 'fleet.example:443'),
    (u: string) => `${u}/../${newId('node')}`,
  ])('near miss %#', (bend) => {
    expect(parseSpiffeId(bend(spiffeId(name)))).toBeUndefined();
  });
});

describe('certificate policy', () => {
  const now = '2026-12-01T06:00:00.900Z';
  const clock = { now, steady: now };
  test.each(['node', 'ramdisk'] as const)('%s: back-dated, at most its lifetime, renewed at two thirds', (role) => {
    const v = validityOf(role, clock, '2036-01-01T00:00:00Z');
    expect(toMillis(v.notBefore)).toBeLessThan(toMillis(now));
    expect(toMillis(v.notAfter) - toMillis(v.notBefore)).toBe(LIFETIME_SECONDS[role] * 1000);
    expect(toMillis(renewAt(v)) - toMillis(v.notBefore)).toBe((LIFETIME_SECONDS[role] * 2000) / 3);
  });
  test('never outlives the authority', () => {
    const end = addSeconds(now, 60);
    expect(validityOf('node', clock, end).notAfter).toBe(end);
  });
  test('after a jump of the clock it is good by the old time and by the new, and a week longer at most', () => {
    const jumped = (seconds: number) =>
      validityOf('node', { now: addSeconds(now, seconds), steady: now }, '2036-01-01T00:00:00Z');
    const ordinary = validityOf('node', clock, '2036-01-01T00:00:00Z');
    const [outage, jump] = [jumped(3 * 3600), jumped(400 * 86_400)];
    expect([outage.notBefore, jump.notBefore]).toEqual([ordinary.notBefore, ordinary.notBefore]);
    expect(outage.notAfter).toBe(addSeconds(ordinary.notAfter, 3 * 3600));
    expect(jump.notAfter).toBe(addSeconds(ordinary.notAfter, 7 * 86_400));
  });
});

test('a bad join request names each field', () => {
  const bad = { csr: 'not base64!', requestKey: '', hardware: { macs: 'x' } };
  expect(() => parseEvidence(JoinRequest, bad)).toThrow(
    expect.objectContaining({
      code: 'INVALID_REQUEST',
      details: {
        errors: [
          { field: 'csr', message: expect.any(String) },
          { field: 'requestKey', message: expect.any(String) },
          { field: 'hardware.macs', message: expect.any(String) },
        ],
      },
    }),
  );
});

test('base64 and PEM read back', () => {
  const bytes = Uint8Array.from({ length: 200 }, (_, i) => i);
  expect(fromBase64(toBase64(bytes))).toEqual(bytes);
  const two = toPem('X', bytes) + toPem('X', bytes.slice(0, 3));
  expect(fromPem('X', two)).toEqual([bytes, bytes.slice(0, 3)]);
});
