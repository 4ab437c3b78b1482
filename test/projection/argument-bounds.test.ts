/** Tests catalogs/projection/argument-bounds.ts: the shown schema has exactly the bounds of the policy. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ArgumentBound, boundWords, tightenSchema } from '../../catalogs/projection/argument-bounds.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const schema = {
  type: 'object',
  properties: {
    amount: { type: 'number', maximum: 50 },
    branch: { type: 'string' },
    kind: { enum: ['a', 'b', 'c'] },
    note: { type: 'string', pattern: 'x' },
    any: true,
  },
  required: ['kind'],
};
const shown = (...bounds: readonly ArgumentBound[]): Record<string, unknown> =>
  tightenSchema(schema, bounds) as Record<string, unknown>;
const propertyOf = (tight: Record<string, unknown>, name: string): unknown =>
  (tight.properties as Record<string, unknown>)[name];

describe('bounds in the schema' + verifies('CY-13'), () => {
  it('use the stricter of two limits, and the common values', () => {
    expect(propertyOf(shown({ path: ['amount'], maximum: 100 }), 'amount')).toEqual({ type: 'number', maximum: 50 });
    expect(propertyOf(shown({ path: ['amount'], maximum: 10, minimum: 1 }), 'amount')).toEqual({
      type: 'number',
      maximum: 10,
      minimum: 1,
    });
    expect(propertyOf(shown({ path: ['kind'], oneOf: ['b', 'z'] }), 'kind')).toEqual({ enum: ['b'] });
    expect(propertyOf(shown({ path: ['kind'], oneOf: ['z'] }), 'kind')).toEqual({ not: {} });
    expect(propertyOf(shown({ path: ['kind'], noneOf: ['b'] }), 'kind')).toEqual({ enum: ['a', 'c'] });
    expect(propertyOf(shown({ path: ['note'], prefix: 'a.b' }), 'note')).toEqual({
      allOf: [{ type: 'string', pattern: 'x' }, { pattern: '^a\\.b' }],
    });
  });

  it('require what every allowed call must have, and hide what no call may have', () => {
    expect(shown({ path: ['branch'], oneOf: ['main'] }).required).toEqual(['kind', 'branch']);
    expect(shown({ path: ['branch'], noneOf: ['main'] }).required).toEqual(['kind']);
    expect(propertyOf(shown({ path: ['branch'], present: false }), 'branch')).toBeUndefined();
    expect(shown({ path: ['kind'], present: false })).toEqual(schema);
  });

  it('leave undeclared, nested and open arguments to words', () => {
    expect(
      shown({ path: ['ghost'], maximum: 1 }, { path: ['a', 'b'], maximum: 1 }, { path: ['any'], maximum: 1 }),
    ).toEqual(schema);
    expect(boundWords({ path: ['a', 'b'], maximum: 1, minimum: 0 })).toBe('a.b at least 0 and at most 1');
  });

  it('accept exactly the calls of the original schema that keep the bounds', () => {
    const value = fc.oneof(fc.integer({ min: -3, max: 60 }), fc.constantFrom('a', 'b', 'c', 'ax', 'bx', 'main', ''));
    const bound = fc.record(
      {
        path: fc.constantFrom(['amount'], ['branch'], ['kind'], ['note']),
        oneOf: fc.array(value, { minLength: 1, maxLength: 3 }),
        noneOf: fc.array(value, { minLength: 1, maxLength: 3 }),
        prefix: fc.constantFrom('a', 'm', '.'),
        minimum: fc.integer({ min: -5, max: 60 }),
        maximum: fc.integer({ min: -5, max: 60 }),
        above: fc.integer({ min: -5, max: 60 }),
        below: fc.integer({ min: -5, max: 60 }),
      },
      { requiredKeys: ['path'] },
    ) as unknown as fc.Arbitrary<ArgumentBound>;
    const args = fc.record({ amount: value, branch: value, kind: value, note: value }, { requiredKeys: [] });
    fc.assert(
      fc.property(fc.array(bound, { maxLength: 3 }), args, (bounds, given) => {
        const whole =
          createValidator(schema).check(given).length === 0 &&
          bounds.every((one) => keeps(one, (given as Record<string, unknown>)[one.path[0] ?? '']));
        expect(
          createValidator(tightenSchema(schema, bounds) as Record<string, unknown>).check(given).length === 0,
        ).toBe(whole);
      }),
      { numRuns: roundsOf(500, 100) },
    );
  });
});

/** Checks bounds by hand, for a declared argument that may be absent. */
function keeps(bound: ArgumentBound, value: unknown): boolean {
  const isContrary = bound.noneOf !== undefined || bound.above !== undefined || bound.below !== undefined;
  if (value === undefined) return isContrary;
  return (
    (bound.oneOf === undefined || bound.oneOf.includes(value)) &&
    bound.noneOf?.includes(value) !== true &&
    (typeof value !== 'string' || bound.prefix === undefined || value.startsWith(bound.prefix)) &&
    (typeof value !== 'number' ||
      (value >= (bound.minimum ?? -Infinity) &&
        value <= (bound.maximum ?? Infinity) &&
        value > (bound.above ?? -Infinity) &&
        value < (bound.below ?? Infinity)))
  );
}
