import { Webhook } from 'standardwebhooks';
import { expect, test } from 'vitest';
import { newSecret, secretBytes, sign, verify } from './signature.ts';

const NOW = Math.floor(Date.now() / 1000);
const BODY = '{"name":"Zürich ✓ 東京","text":"trailing"}\n';

test('the public package verifies what we sign, and we verify what it signs', async () => {
  const secret = newSecret();
  const headers = await sign('evt_1', NOW, BODY, [secret]);
  expect(new Webhook(secret).verify(BODY, { ...headers })).toEqual(JSON.parse(BODY));
  const theirs = new Webhook(secret).sign('evt_1', new Date(NOW * 1000), BODY);
  expect(headers['webhook-signature']).toBe(theirs);
  expect(await verify({ ...headers, 'webhook-signature': theirs }, new TextEncoder().encode(BODY), secret, NOW)).toBe(
    'valid',
  );
});

test('while a secret rotates, both verify; a removed one does not', async () => {
  const [fresh, old, removed] = [newSecret(), newSecret(), newSecret()];
  const headers = await sign('evt_1', NOW, BODY, [fresh, old]);
  for (const secret of [fresh, old]) {
    expect(await verify(headers, BODY, secret, NOW)).toBe('valid');
    expect(() => new Webhook(secret).verify(BODY, { ...headers })).not.toThrow();
  }
  expect(await verify(headers, BODY, removed, NOW)).toBe('no-match');
  expect(() => new Webhook(removed).verify(BODY, { ...headers })).toThrow();
});

test('any order, other versions and junk between', async () => {
  const secret = newSecret();
  const { 'webhook-signature': good, ...rest } = await sign('evt_1', NOW, BODY, [secret]);
  const other = (await sign('evt_1', NOW, BODY, [newSecret()]))['webhook-signature'];
  for (const list of [
    `${other} ${good}`,
    `${good} ${other}`,
    `v1a,AAAA v2,${good.slice(3)} ${good}`,
    ` junk v1, v1,!!! v1 ${good} `,
  ]) {
    expect(await verify({ ...rest, 'webhook-signature': list }, BODY, secret, NOW), list).toBe('valid');
  }
  for (const list of ['v1,', 'v1a,AAAA', `v2,${good.slice(3)}`, good.slice(0, -2)]) {
    expect(await verify({ ...rest, 'webhook-signature': list }, BODY, secret, NOW), list).not.toBe('valid');
  }
});

test('changed body, id or timestamp, and a timestamp out of bounds', async () => {
  const secret = newSecret();
  const h = await sign('evt_1', NOW, BODY, [secret]);
  expect(await verify(h, BODY.trimEnd(), secret, NOW)).toBe('no-match');
  expect(await verify({ ...h, 'webhook-id': 'evt_2' }, BODY, secret, NOW)).toBe('no-match');
  expect(await verify({ ...h, 'webhook-timestamp': String(NOW + 1) }, BODY, secret, NOW)).toBe('no-match');
  expect(await verify(h, BODY, secret, NOW + 360)).toBe('too-old');
  expect(await verify(h, BODY, secret, NOW - 360)).toBe('too-new');
  expect(await verify({ ...h, 'webhook-timestamp': 'soon' }, BODY, secret, NOW)).toBe('bad-timestamp');
  expect(await verify({}, BODY, secret, NOW)).toBe('missing-headers');
});

test('a secret is whsec_ and 24 to 64 bytes', () => {
  expect(secretBytes(newSecret())).toHaveLength(32);
  for (const bad of [
    '',
    'whsec_',
    'whsec_AAAA',
    'AAAA',
    `whsec_${'A'.repeat(88)}`,
    'whsec_***',
    `Whsec_${'A'.repeat(44)}`,
  ]) {
    expect(() => secretBytes(bad), bad).toThrow(/secret/);
  }
});
