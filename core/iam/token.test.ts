import { expect, test } from 'vitest';
import { sha256Hex } from '../kernel/canonical-json.ts';
import { crc32, makeToken, parseToken } from './token.ts';

test('CRC-32 gives the check value of the standard', () => {
  expect(crc32('123456789')).toBe(0xcbf43926);
});

test('a token is 58 characters, names its kind and parses back to its hash', async () => {
  const made = makeToken('key');
  expect(made.token).toMatch(/^biam_key_[A-Za-z0-9_-]{49}$/);
  expect(made.token).toHaveLength(58);
  expect(made.hash).toBe(sha256Hex(made.token));
  expect(parseToken(made.token)).toEqual({ session: 'api-key', hash: made.hash });
});

test('any one changed character is noticed without a lookup', async () => {
  const { token } = makeToken('ses');
  for (let i = 0; i < token.length; i++) {
    const other = token[i] === 'A' ? 'B' : 'A';
    expect(parseToken(token.slice(0, i) + other + token.slice(i + 1))).toBeUndefined();
  }
  expect(parseToken(`${token}A`)).toBeUndefined();
  expect(parseToken(token.replace('biam_ses_', 'biam_dlg_'))).toBeUndefined();
});
