import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { type ArgumentRepair, repairArguments } from '../../catalogs/validation/argument-repair.ts';
import { compileSchema } from '../../catalogs/validation/compiled-schema.ts';
import { guardPattern, isPlain, resetPatternClock } from '../../catalogs/validation/pattern-guard.ts';
import { prepareSchema } from '../../catalogs/validation/prepared-schema.ts';
import { formatFaults, nearestName } from '../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

type Schema = Record<string, unknown>;

interface Case {
  readonly name: string;
  readonly schema: Schema;
  readonly value: unknown;
}

/** The cases of cases.yaml. */
const CASES = parse(readFileSync(new URL('./cases.yaml', import.meta.url), 'utf8')) as {
  readonly faults: readonly (Case & { readonly faults: readonly string[] })[];
  readonly repairs: readonly (Case & { readonly repaired: unknown; readonly notes?: readonly string[] })[];
  readonly unrepairable: readonly Case[];
};

function object(properties: Schema, more: Schema = {}): Schema {
  return { type: 'object', properties, ...more };
}

function faultsOf(schema: Schema, value: unknown): string {
  return formatFaults(createValidator(schema).check(value));
}

function repair(schema: Schema, value: unknown): ArgumentRepair | undefined {
  return repairArguments(schema, value, createValidator(schema).check(value));
}

describe('faults of arguments' + verifies('HE-06'), () => {
  it.each(CASES.faults)('name the place and what is allowed: $name', ({ schema, value, faults }) => {
    expect(faultsOf(schema, value)).toBe(faults.join('\n'));
  });

  it('show at most 40 characters of a value, and 1 kB in total', () => {
    const secret = 'S'.repeat(500);
    const schema = object(
      Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`n${index}`, { type: 'number' }])),
    );
    const text = faultsOf(schema, Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`n${index}`, secret])));
    expect(text.length).toBeLessThanOrEqual(1000);
    expect(text).toMatch(/… and \d+ more$/);
    expect(text).not.toContain('S'.repeat(41));
    expect(faultsOf(object({ s: { type: 'number' } }), { s: '"'.repeat(300) })).toContain('of 300 characters');
  });

  it('suggest a name only if it is similar enough', () => {
    expect(nearestName('file-path', ['filePath', 'path'])).toBe('filePath');
    expect(nearestName('pth', ['path'])).toBe('path');
    expect(nearestName('banana', ['path', 'query'])).toBeUndefined();
  });

  it('say that a value is too deep, and nothing throws', () => {
    let deep: unknown = 1;
    for (let level = 0; level < 50_000; level += 1) deep = { a: deep };
    const schema = object({ a: { $ref: '#' } });
    expect(faultsOf(schema, deep)).toContain('cannot be checked');
  });

  it('are not found for a schema that cannot be used, and the tool is marked as unchecked', () => {
    expect(createValidator({ $ref: 'http://x/' })).toMatchObject({ unchecked: expect.stringContaining('SCHEMA_REF') });
    expect(createValidator({ $ref: 'http://x/' }).check({ any: 1 })).toEqual([]);
    expect(createValidator(object({ s: { pattern: '(' } })).unchecked).toContain('not a regular expression');
    expect(
      createValidator(
        object({ o: { patternProperties: { '^(a+)+$': { type: 'string' } }, additionalProperties: false } }),
      ).unchecked,
    ).toContain('names');
    expect(createValidator(undefined).check({})).toEqual([]);
  });

  it('are found in results whose root is not an object', () => {
    expect(createValidator({ type: 'array', items: { type: 'number' } }, 'output').check([1])).toEqual([]);
    expect(createValidator({ type: 'array', items: { type: 'number' } }, 'output').check(['a'])).toHaveLength(1);
  });

  it('are not found for unknown formats', () => {
    for (const format of ['constructor', '__proto__', 'toString', 'url', 'int64'])
      expect(createValidator(object({ s: { format } })).check({ s: 'x' })).toEqual([]);
  });
});

describe('interpreted and compiled validators', () => {
  it('agree for a tool that is called often, which is compiled in idle time', async () => {
    const schema = object(
      { a: { type: 'string', pattern: '^(ab)+$', format: 'hostname' }, n: { type: 'integer' } },
      { required: ['a'], additionalProperties: false },
    );
    const { check } = createValidator(schema);
    const values: readonly unknown[] = [
      { a: 'abab' },
      { a: 'abc' },
      {},
      { a: 'ab', n: 1.5 },
      { a: 'ab', x: 1 },
      { a: 'ab', constructor: 1 },
    ];
    const cold = values.map((value) => formatFaults(check(value)));
    for (let call = 0; call < 60; call += 1) check(values[0]);
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    expect(values.map((value) => formatFaults(check(value)))).toEqual(cold);
  });

  inFull('agree on random schemas and values', () => {
    const scalar = fc.constantFrom<Schema>(
      { type: 'string', maxLength: 2 },
      { type: 'integer', minimum: 0 },
      { enum: ['a', 1, null] },
      { const: { a: 1 } },
      { type: ['null', 'boolean'] },
      { pattern: '^a|b+c+' },
      { multipleOf: 2 },
      true as unknown as Schema,
      { not: { type: 'string' } },
    );
    const { node } = fc.letrec<{ node: Schema }>((tie) => ({
      node: fc.oneof(
        { maxDepth: 3 },
        scalar,
        fc.record(
          {
            type: fc.constant('object'),
            properties: fc.dictionary(fc.constantFrom('a', 'b', 'constructor'), tie('node')),
            required: fc.array(fc.constantFrom('a', 'toString')),
            additionalProperties: fc.oneof(fc.boolean(), tie('node')),
          },
          { requiredKeys: ['type'] },
        ),
        fc.record({ anyOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }) }),
        fc.record({ oneOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }) }),
        fc.record({ allOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }) }),
        fc.record(
          {
            type: fc.constant('array'),
            prefixItems: fc.array(tie('node'), { minLength: 1, maxLength: 2 }),
            items: tie('node'),
            uniqueItems: fc.boolean(),
          },
          { requiredKeys: ['type'] },
        ),
        fc.record({ if: tie('node'), then: tie('node'), else: tie('node') }),
      ),
    }));
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 3 },
        fc.constantFrom<unknown>('a', 'abc', 0, 2, 1.5, null, true, { a: 1 }),
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('value'), { maxKeys: 3, noNullPrototype: true }),
      ),
    })).value;
    fc.assert(
      fc.property(node, value, (schema, sample) => {
        const prepared = prepareSchema(object({ x: schema }), 'input');
        if ('quarantined' in prepared) return;
        const compiled = compileSchema(prepared);
        expect(compiled?.isValid({ x: sample })).toBe(
          createValidator(object({ x: schema })).check({ x: sample }).length === 0,
        );
      }),
      { numRuns: roundsOf(1500, 150) },
    );
  });
});

describe('patterns of servers', () => {
  it('a catastrophic pattern ends and refuses; many of them together have one time limit', () => {
    const { check } = createValidator(object({ l: { type: 'array', items: { type: 'string', pattern: '^(a+)+$' } } }));
    expect(check({ l: Array.from({ length: 300 }, () => `${'a'.repeat(40)}!`) }).length).toBeGreaterThan(0);
    expect(check({ l: ['aaaa', 'a'.repeat(3000)] })).toEqual([]);
  });

  it('are plain if they run in linear time', () => {
    for (const plain of ['^[a-z]+$', 'abc', '^\\d{4}-\\d{2}$', '^.*$', '^(a|b)$'])
      expect(isPlain(plain), plain).toBe(true);
    for (const risky of ['^(a+)+$', '(a|a)*b', '.*a.*b', '(?=x)y', '(a)\\1', '\\s+$', '(', '\\-'])
      expect(isPlain(risky), risky).toBe(false);
  });

  it('may need no flag u, and are ignored if they are not patterns', () => {
    resetPatternClock();
    expect(guardPattern('^[\\w\\-]+$')?.test('a-b-c-d-e-f-g-h')).toBe(true);
    expect(guardPattern('(')).toBeUndefined();
  });
});

describe('repair of invalid arguments' + verifies('HE-06'), () => {
  it.each(CASES.repairs)('changes $name', ({ schema, value, repaired, notes }) => {
    const before = JSON.stringify(value);
    const result = repair(schema, value);
    expect(result?.value).toEqual(repaired);
    if (notes !== undefined) expect(result?.notes).toEqual(notes);
    expect(result?.notes.length).toBeGreaterThan(0);
    expect(JSON.stringify(value)).toBe(before);
  });

  it.each(CASES.unrepairable)('gives up: $name', ({ schema, value }) => {
    expect(repair(schema, value)).toBeUndefined();
  });

  it('gives up if more places fail than one repair may change', () => {
    const names = Array.from({ length: 300 }, (_, index) => `n${index}`);
    const schema = object(Object.fromEntries(names.map((name) => [name, { type: 'number' }])));
    expect(repair(schema, Object.fromEntries(names.map((name) => [name, '1'])))).toBeUndefined();
  });

  it('never changes valid arguments', () => {
    const schema = object({ content: { type: 'string' }, n: { type: ['integer', 'string'] } });
    expect(createValidator(schema).check({ content: '{"a":1}', n: '5' })).toEqual([]);
    expect(repairArguments(schema, {}, [])).toBeUndefined();
  });

  it('leaves the other arguments unchanged', () => {
    const schema = object({
      content: { type: 'string' },
      n: { type: 'integer' },
      l: { type: 'array', items: object({ n: { type: 'number' } }) },
    });
    expect(repair(schema, { content: '[1]', n: '5', l: [{ n: '1', keep: 'x' }], more: '7' })).toMatchObject({
      value: { content: '[1]', n: 5, l: [{ n: 1, keep: 'x' }], more: '7' },
    });
  });
});
