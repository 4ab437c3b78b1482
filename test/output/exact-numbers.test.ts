/** Tests how output schemas judge numbers that a double cannot represent. */
import { describe, expect, it } from 'vitest';
import { doublesAround, fitsDouble } from '../../adapters/rpc/decimal.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { checkMarkedNumbers, markExactNumbers } from '../../facade/output/exact-numbers.ts';
import { verifies } from '../verifies.ts';

const fits = (written: string, schema: object): boolean =>
  checkMarkedNumbers(
    JSON.parse(markExactNumbers(`{"n":${written}}`)),
    createValidator({ type: 'object', properties: { n: schema } }, 'output').check,
  ).length === 0;

describe('the check of a number that a double cannot represent against an output schema' + verifies('TR-84'), () => {
  it.each([
    ['9007199254740993', { type: 'number' }, true],
    ['9007199254740993', { type: 'integer' }, true],
    ['9007199254740993', {}, true],
    ['9007199254740993', { type: 'string' }, false],
    ['9007199254740993', { type: ['string', 'number'] }, true],
    ['9007199254740993', { type: 'integer', maximum: 9007199254740992 }, false],
    ['9007199254740993', { type: 'integer', minimum: 9007199254740994 }, false],
    ['9007199254740993', { type: 'integer', maximum: 9007199254740994, minimum: 9007199254740992 }, true],
    ['9007199254740993', { const: 9007199254740992 }, false],
    ['-9007199254740993', { type: 'integer', maximum: 0 }, true],
    ['0.1000000000000000055', { type: 'number', minimum: 0, maximum: 1 }, true],
    ['0.1000000000000000055', { type: 'number', maximum: 0.1 }, false],
    ['0.1000000000000000055', { type: 'integer' }, false],
    ['1.00000000000000000001', { type: 'integer' }, false],
    ['9007199254740992.5', { type: 'integer' }, false],
    ['1e400', { type: 'number' }, true],
    ['1e400', { type: 'number', maximum: 1e300 }, false],
    ['-1e400', { type: 'number', minimum: 0 }, false],
    ['1e-400', { type: 'number', minimum: 0 }, true],
    ['-0', { type: 'integer', minimum: 0 }, true],
  ])('of %s and %j returns %s', (written, schema, expected) => {
    expect(fitsDouble(written)).toBe(false);
    expect(fits(written, schema)).toBe(expected);
  });

  it('uses the two neighbouring doubles, below and above the number', () => {
    for (const [written, below, above] of [
      ['9007199254740993', 9007199254740992, 9007199254740994],
      ['-9007199254740993', -9007199254740994, -9007199254740992],
      ['1e-400', 0, 5e-324],
      ['-1e-400', -5e-324, 0],
      ['1e400', Number.MAX_VALUE, Number.MAX_VALUE],
    ] as const) {
      expect(doublesAround(written), written).toEqual({ below, above });
    }
  });
});
