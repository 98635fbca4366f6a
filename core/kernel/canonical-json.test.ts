import fc from 'fast-check';
import { expect, test } from 'vitest';
import { canonicalHash, canonicalJson, type Json } from './canonical-json.ts';

test('member order, white space and the spelling of a number do not matter', async () => {
  const [a, b] = ['{"a":1,"b":[1.0,{"y":null,"x":"é"}]}', '{ "b" : [1, {"x":"é","y":null}], "a": 1e0 }'];
  expect(canonicalJson(JSON.parse(a))).toBe('{"a":1,"b":[1,{"x":"é","y":null}]}');
  expect(canonicalHash(JSON.parse(a))).toBe(canonicalHash(JSON.parse(b)));
});

test('round-trips any JSON, and equal texts mean equal values', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
      // -0 has no JSON text of its own; JSON.parse(JSON.stringify()) is what travels.
      const sent = JSON.parse(JSON.stringify(value)) as Json;
      expect(JSON.parse(canonicalJson(sent))).toEqual(sent);
    }),
  );
});

test('refuses what JSON cannot say', () => {
  expect(() => canonicalJson(Number.NaN)).toThrow(TypeError);
  expect(() => canonicalJson([Number.POSITIVE_INFINITY])).toThrow(TypeError);
});
