import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { repairArguments } from '../../catalogs/validation/argument-repair.ts';
import { compileSchema } from '../../catalogs/validation/compiled-schema.ts';
import { guardPattern, isPlain, resetPatternClock } from '../../catalogs/validation/pattern-guard.ts';
import { prepareSchema } from '../../catalogs/validation/prepared-schema.ts';
import { formatFaults, nearestName } from '../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { verifies } from '../verifies.ts';

type Schema = Record<string, unknown>;

function object(properties: Schema, more: Schema = {}): Schema {
  return { type: 'object', properties, ...more };
}

function told(schema: Schema, value: unknown): string {
  return formatFaults(createValidator(schema).check(value));
}

function repaired(schema: Schema, value: unknown): unknown {
  return repairArguments(schema, value, createValidator(schema).check(value));
}

describe('what is wrong with arguments' + verifies('HE-06'), () => {
  it.each<readonly [string, Schema, unknown, string]>([
    ['type', object({ n: { type: ['number', 'null'] } }), { n: 'x' }, 'n: expected number or null, got string "x"'],
    ['required', object({ a: {}, b: {} }, { required: ['a', 'b'] }), {}, 'a: is required\nb: is required'],
    [
      'nested',
      object({ l: { type: 'array', items: object({ n: { type: 'integer' } }) } }),
      { l: [{ n: 1 }, { n: 1.5 }] },
      'l[1].n: expected integer, got number 1.5',
    ],
    [
      'unknown name',
      object({ oldText: {}, newText: {} }, { additionalProperties: false }),
      { newtext: 1 },
      'newtext: is not an argument here; did you mean newText? Allowed: oldText, newText',
    ],
    [
      'unknown name, nothing near',
      object({ a: {} }, { additionalProperties: false }),
      { zzzzzz: 1 },
      'zzzzzz: is not an argument here. Allowed: a',
    ],
    [
      'no name is legal',
      object({}, { additionalProperties: false }),
      { q: 1 },
      'q: is not an argument here. Allowed: none',
    ],
    [
      'enum',
      object({ m: { enum: ['fast', 'slow'] } }),
      { m: 'fsat' },
      'm: expected one of "fast", "slow", got string "fsat"; did you mean "fast"?',
    ],
    ['const', object({ m: { const: 3 } }), { m: [1] }, 'm: expected 3, got a list of 1'],
    ['bounds', object({ n: { minimum: 1 } }), { n: 0 }, 'n: expected >= 1, got number 0'],
    ['exclusive bounds', object({ n: { exclusiveMaximum: 1 } }), { n: 1 }, 'n: expected < 1, got number 1'],
    ['length', object({ s: { minLength: 2 } }), { s: '' }, 's: expected minLength 2, got string ""'],
    ['pattern', object({ s: { pattern: '^a' } }), { s: 'b' }, 's: expected pattern: ^a, got string "b"'],
    [
      'guarded pattern',
      object({ s: { pattern: '^(ab)+$' } }),
      { s: 'b' },
      's: expected pattern ^(ab)+$, got string "b"',
    ],
    ['format', object({ s: { format: 'email' } }), { s: 'b' }, 's: expected format email, got string "b"'],
    ['unique', object({ l: { uniqueItems: true } }), { l: [1, 1] }, 'l: must not contain the same item twice'],
    [
      'contains',
      object({ l: { contains: { type: 'number' } } }),
      { l: ['a'] },
      'l: contains none of the required items',
    ],
    [
      'names',
      object({ o: { type: 'object', propertyNames: { pattern: '^x' } } }),
      { o: { y: 1 } },
      'o: contains a name that is not allowed: names: pattern: ^x',
    ],
    ['dependent', object({}, { dependentRequired: { a: ['b'] } }), { a: 1 }, 'b: is required when a is given'],
    ['not', object({ a: { not: { type: 'string' } } }), { a: 'x' }, 'a: is not allowed here'],
    ['count of names', object({}, { minProperties: 1 }), {}, 'arguments: expected minProperties 1, got an object'],
    [
      'no variant',
      object(
        { x: { anyOf: [{ type: 'string' }, { type: 'array' }, { const: 5 }, { $ref: '#/$defs/N' }] } },
        { $defs: { N: { type: 'null' } } },
      ),
      { x: true },
      'x: expected string, array, 5 or null, got boolean true',
    ],
    [
      'union of required',
      object({}, { anyOf: [{ required: ['a'] }, { required: ['b', 'c'] }] }),
      {},
      'arguments: needs a or b and c',
    ],
    [
      'two variants at once',
      object({}, { oneOf: [{ required: ['a'] }, { required: ['b'] }] }),
      { a: 1, b: 1 },
      'arguments: fits more than one variant: give only the names of one',
    ],
    [
      'the meant variant',
      object({
        o: {
          oneOf: [
            object({ t: { const: 'x' }, w: { type: 'integer', minimum: 1 } }, { required: ['t', 'w'] }),
            object({ t: { const: 'y' } }, { required: ['t', 'z'] }),
          ],
        },
      }),
      { o: { t: 'x', w: 0 } },
      'o.w: expected >= 1, got number 0',
    ],
    [
      'a reference',
      object({ a: { $ref: '#/$defs/A' } }, { $defs: { A: object({ b: { type: 'string' } }) } }),
      { a: { b: 1 } },
      'a.b: expected string, got number 1',
    ],
    [
      'a long name',
      object({}, { additionalProperties: false }),
      { ['\u202e' + 'k'.repeat(80)]: 1 },
      `?${'k'.repeat(58)}…: is not an argument here. Allowed: none`,
    ],
    ['no object at all', object({}), 5, 'arguments: expected object, got number 5'],
  ])('%s', (_, schema, value, text) => {
    expect(told(schema, value)).toBe(text);
  });

  it('never shows more than 40 characters of a value, and 1 kB in all', () => {
    const secret = 'S'.repeat(500);
    const schema = object(
      Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`n${index}`, { type: 'number' }])),
    );
    const text = told(schema, Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`n${index}`, secret])));
    expect(text.length).toBeLessThanOrEqual(1000);
    expect(text).toMatch(/… and \d+ more$/);
    expect(text).not.toContain('S'.repeat(41));
    expect(told(object({ s: { type: 'number' } }), { s: '"'.repeat(300) })).toContain('of 300 characters');
  });

  it('finds the nearest name within reason', () => {
    expect(nearestName('file-path', ['filePath', 'path'])).toBe('filePath');
    expect(nearestName('pth', ['path'])).toBe('path');
    expect(nearestName('banana', ['path', 'query'])).toBeUndefined();
  });

  it('says that a value is too deep instead of failing', () => {
    let deep: unknown = 1;
    for (let level = 0; level < 50_000; level += 1) deep = { a: deep };
    const schema = object({ a: { $ref: '#' } });
    expect(told(schema, deep)).toContain('cannot be checked');
  });

  it('marks a tool unchecked whose schema cannot be judged', () => {
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

  it('judges outputs whose root is no object', () => {
    expect(createValidator({ type: 'array', items: { type: 'number' } }, 'output').check([1])).toEqual([]);
    expect(createValidator({ type: 'array', items: { type: 'number' } }, 'output').check(['a'])).toHaveLength(1);
  });

  it('knows no formats by accident', () => {
    for (const format of ['constructor', '__proto__', 'toString', 'url', 'int64'])
      expect(createValidator(object({ s: { format } })).check({ s: 'x' })).toEqual([]);
  });
});

describe('interpreted and compiled', () => {
  it('hot tools are compiled in idle time and answer the same', async () => {
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

  it('agree on random schemas and values', () => {
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
      { numRuns: 1500 },
    );
  });
});

describe('patterns from outside run under a clock (security 22)', () => {
  it('a catastrophic pattern ends and refuses; many of them cost one clock', () => {
    const { check } = createValidator(object({ l: { type: 'array', items: { type: 'string', pattern: '^(a+)+$' } } }));
    expect(check({ l: Array.from({ length: 300 }, () => `${'a'.repeat(40)}!`) }).length).toBeGreaterThan(0);
    expect(check({ l: ['aaaa', 'a'.repeat(3000)] })).toEqual([]);
  });

  it('knows which patterns are plain', () => {
    for (const plain of ['^[a-z]+$', 'abc', '^\\d{4}-\\d{2}$', '^.*$', '^(a|b)$'])
      expect(isPlain(plain), plain).toBe(true);
    for (const risky of ['^(a+)+$', '(a|a)*b', '.*a.*b', '(?=x)y', '(a)\\1', '\\s+$', '(', '\\-'])
      expect(isPlain(risky), risky).toBe(false);
  });

  it('reads patterns that need no u flag, and drops what is none', () => {
    resetPatternClock();
    expect(guardPattern('^[\\w\\-]+$')?.test('a-b-c-d-e-f-g-h')).toBe(true);
    expect(guardPattern('(')).toBeUndefined();
  });
});

describe('repair of what failed' + verifies('HE-06'), () => {
  it.each<readonly [string, Schema, unknown, unknown, readonly string[]]>([
    [
      'JSON text for an object',
      object({ o: object({ a: { type: 'number' } }) }),
      { o: '{"a":1}' },
      { o: { a: 1 } },
      ['note: o was JSON text, read as an object'],
    ],
    [
      'JSON text inside JSON text',
      object({ o: object({ l: { type: 'array' } }) }),
      { o: '{"l":"[1]"}' },
      { o: { l: [1] } },
      ['note: o was JSON text, read as an object', 'note: o.l was JSON text, read as a list'],
    ],
    [
      'number and boolean text',
      object({ n: { type: 'number' }, b: { type: 'boolean' } }),
      { n: '-1.5', b: 'false' },
      { n: -1.5, b: false },
      ['note: n was text, read as number', 'note: b was text, read as boolean'],
    ],
    ['null for an optional name', object({ a: { type: 'string' } }), { a: null }, {}, ['note: a=null dropped']],
    [
      '"" for an optional name that refuses it',
      object({ p: { type: 'string', minLength: 1 }, n: { type: 'integer' } }),
      { p: '', n: '' },
      {},
      ['note: p="" dropped', 'note: n="" dropped'],
    ],
    [
      'absent where null is named',
      object({ a: { type: ['string', 'null'] } }, { required: ['a'] }),
      {},
      { a: null },
      ['note: a was absent, null sent'],
    ],
    [
      'nulls of another variant',
      object({
        o: {
          anyOf: [
            object({ t: { const: 'x' }, a: { type: 'number' } }, { additionalProperties: false }),
            object(
              { t: { const: 'y' }, b: { type: 'number' }, c: { type: 'number' } },
              { additionalProperties: false },
            ),
          ],
        },
      }),
      { o: { t: 'x', a: 1, b: null, c: null } },
      { o: { t: 'x', a: 1 } },
      [],
    ],
  ])('%s', (_, schema, value, after, notes) => {
    const before = JSON.stringify(value);
    const result = repaired(schema, value) as { value: unknown; notes: readonly string[] };
    expect(result.value).toEqual(after);
    if (notes.length > 0) expect(result.notes).toEqual(notes);
    expect(result.notes.length).toBeGreaterThan(0);
    expect(JSON.stringify(value)).toBe(before);
  });

  it.each<readonly [string, Schema, unknown]>([
    ['the text "null" is text', object({ a: { type: 'array' } }), { a: 'null' }],
    ['numbers never become text', object({ a: { type: 'string' } }), { a: 5 }],
    ['long digits are not rounded', object({ a: { type: 'integer' } }), { a: '12345678901234567890' }],
    ['a required null stays', object({ a: { type: 'string' } }, { required: ['a'] }), { a: null }],
    ['an unknown name is told, not dropped', object({ a: {} }, { additionalProperties: false }), { b: null }],
    ['one item is not made a list', object({ a: { type: 'array' } }), { a: 1 }],
    [
      'a wrong value beside a mendable one',
      object({ a: { type: 'number' }, b: { type: 'number' } }),
      { a: '1', b: 'x' },
    ],
    ['a schema that cannot be read', { $ref: 'http://x/' }, {}],
    [
      'more places than one repair may cost',
      object(Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`n${index}`, { type: 'number' }]))),
      Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`n${index}`, '1'])),
    ],
  ])('%s', (_, schema, value) => {
    expect(repaired(schema, value)).toBeUndefined();
  });

  it('what is valid is never touched', () => {
    const schema = object({ content: { type: 'string' }, n: { type: ['integer', 'string'] } });
    expect(createValidator(schema).check({ content: '{"a":1}', n: '5' })).toEqual([]);
    expect(repairArguments(schema, {}, [])).toBeUndefined();
  });

  it('the rest of the arguments stays as it was', () => {
    const schema = object({
      content: { type: 'string' },
      n: { type: 'integer' },
      l: { type: 'array', items: object({ n: { type: 'number' } }) },
    });
    expect(repaired(schema, { content: '[1]', n: '5', l: [{ n: '1', keep: 'x' }], more: '7' })).toMatchObject({
      value: { content: '[1]', n: 5, l: [{ n: 1, keep: 'x' }], more: '7' },
    });
  });
});
