/** Tests the pin of tools: equal in any order, and different after a change of any field at any depth. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PIN_PATTERN, pinOf } from '../../catalogs/tools/definition-pin.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { verifies } from '../verifies.ts';

const tool = fc.record({
  name: fc.string({ minLength: 1, maxLength: 8 }),
  inputSchema: fc.dictionary(fc.string(), fc.jsonValue()),
  extra: fc.jsonValue(),
}) as unknown as fc.Arbitrary<RawTool>;
const tools = fc.uniqueArray(tool, { minLength: 1, maxLength: 4, selector: ({ name }) => name });

function turned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turned);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, inner]) => [key, turned(inner)]),
  );
}

describe('the pin of tools' + verifies('CY-02'), () => {
  it('does not depend on the order of tools and keys', () => {
    fc.assert(
      fc.property(tools, (all) => {
        const pin = pinOf(all);
        expect(pin).toMatch(PIN_PATTERN);
        expect(pinOf([...all].reverse().map(turned) as RawTool[])).toBe(pin);
      }),
    );
  });

  it('changes with any other value, an added or removed field, or a removed tool', () => {
    fc.assert(
      fc.property(tools, fc.jsonValue(), (all, other) => {
        const [first, ...rest] = all as [RawTool, ...RawTool[]];
        const pin = pinOf(all);
        if (
          JSON.stringify(turned(other)) !== JSON.stringify(turned(first.extra)) &&
          JSON.stringify(other) !== JSON.stringify(first.extra)
        )
          expect(pinOf([{ ...first, extra: other }, ...rest])).not.toBe(pin);
        expect(pinOf([{ ...first, 'added now': null }, ...rest])).not.toBe(pin);
        expect(pinOf(rest)).not.toBe(pin);
      }),
    );
  });

  it.each(['title', 'annotations', 'outputSchema', '_meta', 'icons', 'description'])(
    'covers %s, where poison often hides',
    (field) => {
      const plain = { name: 'a', inputSchema: {} };
      expect(pinOf([{ ...plain, [field]: { x: 1 } }])).not.toBe(pinOf([{ ...plain, [field]: { x: 2 } }]));
    },
  );
});
