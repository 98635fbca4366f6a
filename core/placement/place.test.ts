import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type CandidateDevice, type CandidateNode, type DeviceWant, place } from './place.ts';
import { matches } from './selectors.ts';

let no = 0;
const gpu = (over: Partial<CandidateDevice> = {}): CandidateDevice => ({
  no: ++no,
  class: 'gpu',
  slot: 0,
  attributes: { model: 'h100', memoryGiB: 80, driver: '550.54.15' },
  free: true,
  ...over,
});
const node = (name: string, devices: CandidateDevice[], reasons: string[] = []): CandidateNode => ({
  nodeId: `node_${name}`,
  name,
  reasons,
  devices,
});

test('takes the node with the least left over', () => {
  const big = node('a', [gpu(), gpu(), gpu(), gpu()]);
  const snug = node('b', [gpu(), gpu()]);
  expect(place([{ class: 'gpu', count: 2 }], [big, snug]).proposals.map((p) => p.nodeId)).toEqual(['node_b', 'node_a']);
});

test('overlapping wants are matched, not taken greedily', () => {
  const any = gpu({ slot: 1 });
  const a100 = gpu({ slot: 0, attributes: { model: 'a100' } });
  const wants: DeviceWant[] = [
    { class: 'gpu', count: 1 },
    { class: 'gpu', count: 1, selectors: [{ attribute: 'model', op: 'equals', value: 'a100' }] },
  ];
  expect(place(wants, [node('a', [a100, any])]).proposals).toHaveLength(1);
});

test('every refused node is counted under a reason that names what is missing', () => {
  const answer = place(
    [{ class: 'gpu', count: 2, selectors: [{ attribute: 'model', op: 'equals', value: 'h100' }] }],
    [
      node('cordoned', [gpu(), gpu()], ['cordoned: fan']),
      node('small', [gpu()]),
      node('other', [gpu({ attributes: { model: 'a100' } }), gpu({ attributes: { model: 'a100' } })]),
      node('busy', [gpu({ free: false }), gpu()]),
      node('busy2', [gpu({ free: false }), gpu()]),
    ],
  );
  expect(answer.proposals).toEqual([]);
  expect(answer.free).toBe(5);
  expect(answer.refused).toEqual([
    { code: 'DEVICES_IN_USE', message: '1 matching gpu free, wanted 2', nodes: 2, example: 'busy' },
    { code: 'SELECTOR_MISMATCH', message: '0 gpu with model = h100, wanted 2', nodes: 1, example: 'other' },
    { code: 'NODE_UNSCHEDULABLE', message: 'cordoned: fan', nodes: 1, example: 'cordoned' },
    { code: 'TOO_FEW_DEVICES', message: 'has 1 gpu, wanted 2', nodes: 1, example: 'small' },
  ]);
});

describe('selectors', () => {
  const at = { model: 'h100', memoryGiB: 80, driver: '550.54.15', mig: false };
  test.each([
    [{ attribute: 'model', op: 'equals', value: 'h100' }, true],
    [{ attribute: 'memoryGiB', op: 'equals', value: '80' }, false],
    [{ attribute: 'model', op: 'in', values: ['a100', 'h100'] }, true],
    [{ attribute: 'memoryGiB', op: 'range', min: 80 }, true],
    [{ attribute: 'memoryGiB', op: 'range', min: 81 }, false],
    [{ attribute: 'driver', op: 'range', min: '550.9', max: '560' }, true],
    [{ attribute: 'driver', op: 'range', min: '550.100' }, false],
    [{ attribute: 'model', op: 'range', min: 1 }, false],
    [{ attribute: 'mig', op: 'exists', value: true }, true],
    [{ attribute: 'absent', op: 'exists', value: false }, true],
    [{ attribute: 'absent', op: 'in', values: [] }, false],
    [{ attribute: 'toString', op: 'exists', value: true }, false],
  ] as const)('%j is %s', (selector, want) => {
    expect(matches(selector, at)).toBe(want);
  });
});

test('safety: any proposal holds the request exactly, from free devices of one schedulable node; equal input, equal answer', () => {
  const models = fc.constantFrom('h100', 'a100');
  const device = fc.record({
    slot: fc.nat(7),
    free: fc.boolean(),
    model: models,
    class: fc.constantFrom('gpu', 'disk'),
  });
  const world = fc.array(fc.record({ down: fc.boolean(), devices: fc.array(device, { maxLength: 6 }) }), {
    maxLength: 5,
  });
  const want = fc.record({
    class: fc.constantFrom('gpu', 'disk'),
    count: fc.integer({ min: 1, max: 3 }),
    model: fc.option(models),
  });
  fc.assert(
    fc.property(world, fc.array(want, { minLength: 1, maxLength: 3 }), (shape, asked) => {
      let n = 0;
      const nodes = shape.map((s, i) =>
        node(
          `n${i}`,
          s.devices.map((d) => ({
            no: ++n,
            class: d.class,
            slot: d.slot,
            free: d.free,
            attributes: { model: d.model },
          })),
          s.down ? ['down'] : [],
        ),
      );
      const wants: DeviceWant[] = asked.map((a) => ({
        class: a.class,
        count: a.count,
        selectors: a.model === null ? [] : [{ attribute: 'model', op: 'equals', value: a.model }],
      }));
      const answer = place(wants, nodes);
      expect(place(wants, nodes)).toEqual(answer);
      for (const p of answer.proposals) {
        const home = nodes.find((x) => x.nodeId === p.nodeId)!;
        expect(home.reasons).toEqual([]);
        const taken = p.deviceNos.map((d) => home.devices.find((x) => x.no === d)!);
        expect(new Set(p.deviceNos).size).toBe(wants.reduce((a, w) => a + w.count, 0));
        expect(taken.every((d) => d.free)).toBe(true);
        // Hall's condition for each single want is necessary; the matcher must not have under-served any of them.
        for (const w of wants) {
          const fit = taken.filter(
            (d) => d.class === w.class && (w.selectors ?? []).every((s) => matches(s, d.attributes)),
          );
          expect(fit.length).toBeGreaterThanOrEqual(w.count);
        }
      }
      const refused = answer.refused.reduce((a, r) => a + r.nodes, 0);
      expect(refused + answer.proposals.length).toBe(nodes.length);
    }),
  );
});
