import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { readArguments } from '../../catalogs/projection/argument-lifting.ts';
import { withoutPinned } from '../../catalogs/projection/pinned-arguments.ts';
import { profileViolations } from '../../catalogs/projection/profile-violations.ts';
import { type Projection, projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { instanceOf } from './schema-instances.ts';

type Schema = Record<string, unknown>;
const PROFILES = ['portable', 'flat', 'openai', 'gemini-legacy', 'nova', 'depth5', 'faithful'];
const ANY = {
  anyOf: [
    { type: 'string' },
    { type: 'number' },
    { type: 'boolean' },
    { type: 'object', properties: {}, additionalProperties: true },
    { type: 'array', items: { type: 'string' } },
  ],
};

function shown(schema: unknown, profile = 'portable'): Projection {
  const projection = projectSchema(schema as Schema, loadSchemaProfile(profile));
  if ('quarantined' in projection) throw new Error(projection.quarantined);
  return projection;
}

function properties(map: Schema, profile = 'portable'): Schema {
  return shown({ type: 'object', properties: map }, profile).schema.properties as Schema;
}

/** Returns the schema of one argument without texts. */
function bare(node: Schema, profile = 'portable'): unknown {
  return JSON.parse(
    JSON.stringify(properties({ x: node }, profile).x, (key, value: unknown) =>
      key === 'description' && typeof value === 'string' ? undefined : value,
    ),
  );
}

describe('known bugs of schema cleaners' + verifies('CY-14'), () => {
  it('1: a property with the name of a keyword is not a keyword', () => {
    const names = [
      'pattern',
      'title',
      'properties',
      'exclusiveMinimum',
      'additionalProperties',
      'enum',
      'const',
      'anyOf',
      'items',
      'required',
      'description',
      'constructor',
      'toString',
    ];
    const map = Object.fromEntries(names.map((name) => [name, { type: 'string' }]));
    expect(properties(map)).toEqual(map);
  });

  it('2: default, const, enum and examples are data, with any keys in them', () => {
    const node = {
      type: 'object',
      default: { type: 'object', $ref: 'http://x/', additionalProperties: false },
      examples: [{ pattern: '(' }],
      const: { $ref: '#/nowhere' },
    };
    expect(properties({ x: node }).x).toMatchObject({ type: 'object', additionalProperties: true });
    expect(createValidator({ type: 'object', properties: { x: node } }).check({ x: { $ref: '#/nowhere' } })).toEqual(
      [],
    );
  });

  it('3: the input is not changed, even deeply frozen', () => {
    const freeze = (value: unknown): unknown => {
      if (typeof value === 'object' && value !== null)
        for (const child of Object.values(Object.freeze(value))) freeze(child);
      return value;
    };
    const schema = freeze({
      $defs: { A: { type: ['string', 'null'] } },
      type: 'object',
      properties: { a: { $ref: '#/$defs/A' }, b: { allOf: [{ type: 'object' }, { properties: { 'c.d': {} } }] } },
    });
    for (const profile of PROFILES) shown(schema, profile);
    createValidator(schema).check({ a: null });
  });

  it('4: keywords move together with the type that they belong to', () => {
    expect(
      bare({ type: ['array', 'object'], items: { type: 'number' }, properties: { a: { type: 'string' } } }),
    ).toEqual({
      anyOf: [
        { type: 'array', items: { type: 'number' } },
        { type: 'object', properties: { a: { type: 'string' } } },
      ],
    });
  });

  it('5: the order of keys does not matter', () => {
    expect(properties({ x: { enum: [1, 2], type: 'integer' } })).toEqual(
      properties({ x: { type: 'integer', enum: [1, 2] } }),
    );
  });

  it('6: every subschema is visited: unions, maps, tuples, patterns', () => {
    const odd = { type: 'string', pattern: 'x', format: 'uri' };
    const node = {
      anyOf: [
        { type: 'object', additionalProperties: odd },
        { type: 'array', prefixItems: [odd] },
        { type: 'object', patternProperties: { a: odd } },
      ],
    };
    expect(profileViolations(shown({ type: 'object', properties: { node } }).schema, loadSchemaProfile())).toEqual([]);
  });

  it('7: loops, bombs, depth and cycles in memory soon end with a reason', () => {
    const chain = Object.fromEntries(
      Array.from({ length: 40 }, (_, index) => [
        `d${index}`,
        { type: 'object', properties: { x: { $ref: `#/$defs/d${index + 1}` }, y: { $ref: `#/$defs/d${index + 1}` } } },
      ]),
    );
    const cyclic: Schema = { type: 'object', properties: {} };
    (cyclic.properties as Schema).me = cyclic;
    let deep: Schema = { type: 'string' };
    for (let level = 0; level < 100; level += 1) deep = { type: 'object', properties: { a: deep } };
    const hostile = [
      { $ref: '#' },
      { $ref: '#/$defs/d0', $defs: chain },
      cyclic,
      deep,
      {
        allOf: [{ $ref: '#/$defs/a' }],
        $defs: { a: { anyOf: [{ $ref: '#/$defs/b' }] }, b: { not: { $ref: '#/$defs/a' } } },
      },
    ];
    for (const schema of hostile) expect(projectSchema(schema, loadSchemaProfile())).toHaveProperty('quarantined');
  });

  it('7: a reference that leaves the document is never followed', () => {
    for (const ref of ['http://169.254.169.254/', 'file:///etc/passwd', 'other.json#/a', '//host/x']) {
      expect(projectSchema({ type: 'object', properties: { a: { $ref: ref } } }, loadSchemaProfile())).toEqual({
        quarantined: expect.stringContaining('SCHEMA_REF'),
      });
    }
  });

  it('8: pointers to any place, anchors and embedded ids are followed; dangling ones mean any value', () => {
    const schema = {
      type: 'object',
      $defs: {
        'a/b~c': { type: 'integer' },
        anchored: { $anchor: 'here', type: 'boolean' },
        doc: { $id: 'https://example.org/doc', type: 'number' },
      },
      properties: {
        p: { $ref: '#/$defs/a~1b~0c' },
        q: { $ref: '#here' },
        r: { $ref: 'https://example.org/doc' },
        s: { $ref: '#/properties/p' },
        t: { $ref: '#/nowhere/%zz' },
        u: { $ref: '#nowhere' },
      },
    };
    const map = shown(schema).schema.properties as Schema;
    expect(map).toMatchObject({
      p: { type: 'integer' },
      q: { type: 'boolean' },
      r: { type: 'number' },
      s: { type: 'integer' },
      t: ANY,
      u: ANY,
    });
  });

  it('9: no branch is guessed: a union keeps all of them or becomes wider', () => {
    const node = { oneOf: [{ type: 'string' }, { type: 'object', properties: { a: { type: 'number' } } }] };
    expect(bare(node)).toEqual({ anyOf: node.oneOf });
    expect(bare(node, 'flat')).toEqual({ type: 'string' });
    expect(shown({ type: 'object', properties: { x: node } }, 'flat').lift({ x: '{"a":1}' }).args).toEqual({
      x: { a: 1 },
    });
  });

  it('11: names do not depend on the order and never collide', () => {
    const names = ['a.b', 'a b', 'a_b', '$top', '-n', '1st', 'é', '', '日本', 'x'.repeat(80)];
    const map = (list: readonly string[]): Schema => Object.fromEntries(list.map((name) => [name, { type: 'string' }]));
    const [first, second] = [properties(map(names)), properties(map([...names].reverse()))];
    expect(Object.keys(first).sort()).toEqual(Object.keys(second).sort());
    expect(Object.keys(first).length).toBe(names.length);
    expect(Object.keys(first)).toContain('a_b');
    const lift = shown({ type: 'object', properties: map(names) });
    expect(
      Object.keys(lift.lift(Object.fromEntries(Object.keys(first).map((name) => [name, 'v']))).args).sort(),
    ).toEqual([...names].sort());
  });

  it('12: null is removed for an optional argument, and added for an absent one that is required and nullable', () => {
    const schema = {
      type: 'object',
      properties: {
        a: { type: ['string', 'null'] },
        b: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
        c: { type: 'null' },
      },
      required: ['a', 'c'],
    };
    const projection = shown(schema);
    expect(projection.schema).not.toHaveProperty('required');
    expect(projection.lift({}).args).toEqual({ a: null, c: null });
    expect(projection.lift({ a: 'x', c: null })).toEqual({ args: { a: 'x', c: null }, changed: false });
    expect(projection.log).toContainEqual({ transform: 'null', effect: 'encode', path: '/properties/a' });
  });

  it('16: each dialect is read by its own rules', () => {
    const tuple = {
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      properties: {
        t: { items: [{ type: 'string' }], additionalItems: false },
        r: { $ref: '#/properties/t', type: 'string' },
      },
    };
    expect(createValidator(tuple).check({ t: ['a'], r: ['b'] })).toEqual([]);
    expect(createValidator(tuple).check({ t: ['a', 'b'] })).not.toEqual([]);
    expect(
      createValidator({ type: 'object', properties: { n: { maximum: 3, exclusiveMaximum: true } } }).check({ n: 3 }),
    ).not.toEqual([]);
    expect(
      createValidator({ type: 'object', dependencies: { a: ['b'], c: { required: ['d'] } } }).check({ a: 1 }),
    ).not.toEqual([]);
    expect(
      createValidator({
        type: 'object',
        properties: {
          a: { type: 'string', nullable: true, enum: ['x'] },
          b: { nullable: true, $ref: '#/properties/a' },
        },
      }).check({ a: null, b: null }),
    ).toEqual([]);
    expect(
      createValidator({ type: 'object', properties: { a: { type: 'string', required: true } } }).check({}),
    ).not.toEqual([]);
  });

  it('17: generated rules remain when a description is cut', () => {
    const text = String(
      (properties({ x: { type: 'integer', minimum: 5, description: 'word '.repeat(600) } }).x as Schema).description,
    );
    expect(text.length).toBeLessThanOrEqual(1024);
    expect(text).toMatch(/>= 5$/);
  });
});

describe('repairs of the root', () => {
  const empty = { type: 'object', properties: {} };

  it.each([
    ['null', null],
    ['a list', []],
    ['nothing', {}],
    ['properties null', { type: 'object', properties: null }],
    ['properties a list', { properties: [], required: [] }],
    ['wrong type', { type: 'string' }],
  ])('%s becomes an empty object', (_, schema) => {
    expect(shown(schema).schema).toEqual(empty);
  });

  it('a schema inside one wrapper too many is unwrapped', () => {
    const inner = { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] };
    for (const schema of [{ inputSchema: inner }, { json: inner }, { type: 'object', properties: inner }])
      expect(shown(schema).schema).toEqual(inner);
  });

  it('unions at the root become one object, and a hint says what they require', () => {
    const schema = { type: 'object', properties: { a: {}, b: {} }, oneOf: [{ required: ['a'] }, { required: ['b'] }] };
    expect(shown(schema).hints).toEqual(['give a or b']);
    expect(shown(schema).schema).not.toHaveProperty('oneOf');
    expect(shown(schema, 'faithful').schema).not.toHaveProperty('oneOf');
    expect(shown(schema, 'faithful').hints.length).toBe(1);
    const variants = {
      anyOf: [
        { type: 'object', properties: { k: { const: 'a' }, n: { type: 'number' } }, required: ['k', 'n'] },
        { type: 'object', properties: { k: { const: 'b' }, n: { type: 'string' } }, required: ['k'] },
      ],
    };
    expect(shown(variants).schema).toEqual({
      type: 'object',
      properties: { k: { type: 'string', enum: ['a', 'b'] }, n: { anyOf: [{ type: 'number' }, { type: 'string' }] } },
      required: ['k'],
    });
    expect(shown(variants, 'faithful').schema.properties).toMatchObject({ k: { enum: ['a', 'b'] } });
    expect(
      shown(
        {
          allOf: [
            { properties: { a: { type: 'string' } } },
            { properties: { b: { type: 'string' } }, required: ['b'] },
          ],
        },
        'faithful',
      ).schema,
    ).toMatchObject({ properties: { a: {}, b: {} }, required: ['b'] });
  });

  it('a root that accepts no object is quarantined', () => {
    expect(projectSchema({ anyOf: [{ type: 'string' }, { type: 'number' }] }, loadSchemaProfile())).toHaveProperty(
      'quarantined',
    );
  });
});

describe('transforms', () => {
  it('unroll recursion twice and then show an open object', () => {
    const node = {
      type: 'object',
      properties: { v: { type: 'string' }, kids: { type: 'array', items: { $ref: '#/$defs/Node' } } },
    };
    const text = JSON.stringify(
      shown({ type: 'object', properties: { tree: { $ref: '#/$defs/Node' } }, $defs: { Node: node } }).schema,
    );
    expect(text.match(/"v"/g)?.length).toBe(2);
    expect(text).toContain('same shape as Node');
  });

  it('unroll less if many definitions refer to each other', () => {
    const names = Array.from({ length: 12 }, (_, index) => `T${index}`);
    const defs = Object.fromEntries(
      names.map((name) => [
        name,
        {
          anyOf: [
            { type: 'string' },
            {
              type: 'object',
              properties: Object.fromEntries(names.map((other) => [other, { $ref: `#/$defs/${other}` }])),
            },
          ],
        },
      ]),
    );
    const projection = shown({ type: 'object', properties: { t: { $ref: '#/$defs/T0' } }, $defs: defs });
    expect(JSON.stringify(projection.schema).length).toBeLessThan(5000);
  });

  it('merge allOf', () => {
    const parts = [
      {
        type: 'object',
        properties: { a: { type: 'integer', minimum: 1 } },
        required: ['a'],
        additionalProperties: false,
      },
      {
        properties: { a: { type: 'number', minimum: 3, maximum: 9 }, b: { enum: ['x', 'y'] } },
        additionalProperties: {},
      },
      { properties: { b: { enum: ['y', 'z'] } } },
      { properties: { c: { type: 'array', items: { type: 'string' } } } },
      { properties: { c: { items: { minLength: 1 } } } },
    ];
    const merged = properties({ x: { allOf: parts } }).x;
    expect(merged).toEqual({
      type: 'object',
      properties: {
        a: { type: 'integer', description: '>= 3, <= 9' },
        b: { type: 'string', enum: ['y'] },
        c: { type: 'array', items: { type: 'string', description: 'minLength 1' } },
      },
      required: ['a'],
      additionalProperties: true,
    });
  });

  it('keep only the first of two unions in one node; the validator enforces the second', () => {
    const node = {
      allOf: [
        { anyOf: [{ type: 'string' }, { type: 'number' }] },
        { anyOf: [{ type: 'string' }, { type: 'boolean' }] },
      ],
    };
    expect(profileViolations(shown({ type: 'object', properties: { node } }).schema, loadSchemaProfile())).toEqual([]);
  });

  it('describe conditions in words and show the names in them', () => {
    const schema = {
      type: 'object',
      properties: { mode: { enum: ['a', 'b'] }, x: { type: 'string' } },
      allOf: [
        {
          if: { properties: { mode: { const: 'a' } }, required: ['mode'] },
          then: { required: ['x'], properties: { y: { type: 'number' } } },
          else: { required: ['z'] },
        },
      ],
      dependentRequired: { x: ['w'] },
      dependentSchemas: { x: { properties: { v: { type: 'boolean' } }, required: ['v'] } },
      not: { required: ['x', 'q'] },
    };
    const projection = shown(schema);
    const map = projection.schema.properties as Record<string, Schema>;
    expect(map.x).toEqual({ type: 'string', description: 'needed when mode is a' });
    expect(map.y).toEqual({ type: 'number' });
    expect(map.v).toEqual({ type: 'boolean', description: 'needed when x is given' });
    expect(projection.hints).toContain('not x together with q');
    expect(
      shown({
        type: 'object',
        if: { minProperties: 1 },
        then: { anyOf: [{ properties: { p: {} } }] },
        not: { const: 3 },
      }).hints.length,
    ).toBe(2);
    expect(
      shown({
        type: 'object',
        properties: { a: { type: 'string', not: { enum: ['x', 'y'] } }, b: { not: { type: 'object' } } },
      }).schema,
    ).toBeDefined();
  });

  it('describe every constraint in words', () => {
    const words = (node: Schema): unknown => (properties({ x: node }).x as Schema).description;
    expect(words({ type: 'string', minLength: 1, maxLength: 80 })).toBe('1 to 80 characters');
    expect(words({ type: 'string', minLength: 4, maxLength: 4 })).toBe('exactly 4 characters');
    expect(words({ type: 'number', minimum: 0, exclusiveMaximum: 2, multipleOf: 0.5, default: 1 })).toBe(
      '>= 0, < 2, multiple of 0.5, default 1',
    );
    expect(words({ type: 'array', minItems: 1, uniqueItems: true, items: { type: ['string', 'null'] } })).toBe(
      'items may be null, minItems 1, unique',
    );
    expect(
      words({
        type: 'object',
        minProperties: 1,
        patternProperties: { '^x': { type: 'string' } },
        propertyNames: { pattern: '^x' },
      }),
    ).toBe('minProperties 1, names matching ^x: string, names: pattern: ^x');
    expect(words({ type: 'boolean', enum: [true], description: 'Yes.' })).toBe('Yes. Only true is allowed.');
    expect(
      words({ type: 'array', prefixItems: [{ type: 'string' }, { type: 'array', items: { type: 'number' } }, {}] }),
    ).toBe('3 items: string, [number], any');
  });

  it('join branches of one type and remove branches that cannot be chosen', () => {
    expect(bare({ anyOf: [{ const: 'a' }, { const: 'b' }, { enum: ['c'] }] })).toEqual({
      type: 'string',
      enum: ['a', 'b', 'c'],
    });
    expect(
      properties({
        x: {
          anyOf: [
            { type: 'string', format: 'date' },
            { type: 'string', enum: ['now'] },
          ],
        },
      }).x,
    ).toEqual({ type: 'string', description: 'format: date or "now"' });
    expect(bare({ anyOf: [{ type: 'string', minLength: 1 }, { type: 'string' }] })).toEqual({ type: 'string' });
    expect(
      bare({
        type: 'object',
        properties: { k: { type: 'string' } },
        anyOf: [{ type: 'string' }, { properties: { a: { type: 'number' } } }],
      }),
    ).toEqual({ type: 'object', properties: { a: { type: 'number' }, k: { type: 'string' } } });
    expect(bare({ anyOf: [{ type: 'string' }, {}] })).toEqual(ANY);
    expect(bare({ anyOf: [{ not: {} }, { not: {} }] })).toEqual(ANY);
    expect(bare({ anyOf: [{ type: 'null' }] })).toEqual({ type: 'string' });
    expect(
      bare({ anyOf: [{ anyOf: [{ type: 'string' }, { type: 'null' }], description: 'd' }, { type: 'number' }] }),
    ).toEqual({ anyOf: [{ type: 'string' }, { type: 'number' }] });
  });

  it('omit an argument that may never be given, and declare an undeclared required name only in an open object', () => {
    expect(properties({ a: false, b: true })).toEqual({ b: ANY });
    expect(shown({ type: 'object', properties: { a: { type: 'string' } }, required: ['ghost'] }).schema).toMatchObject({
      required: ['ghost'],
    });
    const closed = {
      type: 'object',
      properties: { a: { type: 'string' } },
      required: ['ghost', 'a'],
      additionalProperties: false,
    };
    expect(shown(closed).schema).toEqual({ type: 'object', properties: { a: { type: 'string' } }, required: ['a'] });
    expect(createValidator(closed).check({ a: 'x' })).toEqual([]);
  });
});

describe('profiles', () => {
  it('openai: an optional argument allows null, and an absent one is lifted back as absent', () => {
    const map = properties(
      {
        a: { type: 'string', enum: ['x'] },
        b: { anyOf: [{ type: 'string' }, { type: 'object', properties: { c: {} } }] },
      },
      'openai',
    );
    expect(map.a).toEqual({ type: ['string', 'null'], enum: ['x', null] });
    expect((map.b as Schema).anyOf).toContainEqual({ type: 'null' });
  });

  it(
    'openai: follows strict mode at every depth, and shows JSON text for what that mode cannot express' +
      verifies('CY-14', 'ST-94'),
    () => {
      const source = {
        type: 'object',
        required: ['title'],
        additionalProperties: true,
        properties: {
          title: { type: 'string' },
          count: { type: 'integer', minimum: 1 },
          note: { type: ['string', 'null'] },
          inner: {
            type: 'object',
            required: ['a'],
            properties: { a: { type: 'string' }, b: { type: 'object', properties: { c: { type: 'boolean' } } } },
          },
          list: { type: 'array', items: { type: 'object', properties: { d: { type: 'number' } } } },
          map: { type: 'object', additionalProperties: { type: 'number' } },
          mixed: { type: 'object', properties: { e: { type: 'string' } }, additionalProperties: { type: 'string' } },
          any: {},
        },
      };
      const { schema, lift } = shown(source, 'openai');
      expect(profileViolations(schema, loadSchemaProfile('openai'))).toEqual([]);
      const objects: Schema[] = [];
      JSON.stringify(schema, (_key, value: unknown) => {
        const types = [(value as Schema | null)?.type].flat();
        if (types.includes('object')) objects.push(value as Schema);
        return value;
      });
      expect(objects).toHaveLength(4);
      for (const one of objects)
        expect([one.additionalProperties, one.required]).toEqual([false, Object.keys(one.properties as Schema)]);
      expect((schema.properties as Schema).count).toMatchObject({ type: ['integer', 'null'] });
      expect((schema.properties as Schema).title).toEqual({ type: 'string' });
      const validator = createValidator(source);
      const given = {
        title: 'x',
        count: null,
        note: null,
        inner: { a: 'y', b: { c: null } },
        list: [{ d: null }, { d: 2 }],
        map: '{"k":1}',
        mixed: null,
        any: '[1]',
      };
      const { args, changed } = lift(given);
      expect([args, changed]).toEqual([
        { title: 'x', note: null, inner: { a: 'y', b: {} }, list: [{}, { d: 2 }], map: { k: 1 }, any: [1] },
        true,
      ]);
      expect(validator.check(args)).toEqual([]);
      // A caller may also leave out optional arguments.
      expect(lift({ title: 'x' })).toEqual({ args: { title: 'x' }, changed: false });
    },
  );

  it('gemini-legacy: no open objects, and nullable as a keyword', () => {
    expect(
      properties(
        {
          o: { type: 'object' },
          n: { type: ['string', 'null'] },
          u: { type: ['string', 'number', 'null'] },
          any: {},
          closed: { type: 'object', additionalProperties: false },
        },
        'gemini-legacy',
      ),
    ).toEqual({
      o: { type: 'string', description: 'JSON text of object' },
      n: { type: 'string', nullable: true },
      u: { anyOf: [{ type: 'string' }, { type: 'number' }] },
      any: { type: 'string', description: 'any value; write objects and lists as JSON text' },
      closed: { type: 'string', description: 'JSON text of object' },
    });
    expect(
      shown({ type: 'object', properties: { o: { type: 'object' } } }, 'gemini-legacy').lift({ o: '{"a":[1]}' }).args,
    ).toEqual({ o: { a: [1] } });
  });

  it('flat: no unions; a list is preferred to a scalar, and numbers stay numbers', () => {
    expect(bare({ anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }] }, 'flat')).toEqual({
      type: 'array',
      items: { type: 'string' },
    });
    expect(
      bare(
        {
          anyOf: [
            { type: 'array', items: { type: 'string' } },
            { type: 'array', items: { type: ['number', 'string'] } },
          ],
        },
        'flat',
      ),
    ).toEqual({ type: 'array', items: { type: 'string' } });
    expect(bare({ anyOf: [{ type: 'integer' }, { type: 'number', minimum: 3 }] }, 'flat')).toEqual({ type: 'number' });
    expect(bare({ type: ['boolean', 'number'] }, 'flat')).toEqual({ type: 'string' });
  });

  it('nova: three keys at the root', () => {
    expect(
      Object.keys(
        shown({ type: 'object', description: 'd', properties: {}, additionalProperties: true }, 'nova').schema,
      ),
    ).toEqual(['type', 'properties']);
  });

  it('faithful: constraints stay, references and illegal names are replaced', () => {
    const schema = {
      type: 'object',
      $defs: { N: { type: 'number', exclusiveMinimum: 0 } },
      properties: {
        'a b': { $ref: '#/$defs/N' },
        l: { type: 'array', items: { properties: { 'c d': {} } } },
        m: { type: 'object', additionalProperties: { type: 'object', properties: { 'e f': {} } } },
        u: { oneOf: [{ properties: { 'g h': {} } }, { type: 'string', pattern: 'x' }] },
      },
      additionalProperties: false,
    };
    const projection = shown(schema, 'faithful');
    expect(projection.schema).toMatchObject({
      additionalProperties: false,
      properties: { a_b: { exclusiveMinimum: 0 }, u: { oneOf: [{}, { pattern: 'x' }] } },
    });
    expect(projection.lift({ a_b: 1, l: [{ c_d: 1 }], m: { k: { e_f: 1 } }, u: { g_h: 1 } }).args).toEqual({
      'a b': 1,
      l: [{ 'c d': 1 }],
      m: { k: { 'e f': 1 } },
      u: { 'g h': 1 },
    });
  });

  it('refuse a profile without a file, and follow no path in its name', () => {
    for (const name of ['nope', '../errors', '/etc/passwd', ''])
      expect(() => loadSchemaProfile(name)).toThrow(/no schema profile/);
    expect(loadSchemaProfile().name).toBe('portable');
  });

  it('show an open object if a rule of the profile cannot be met, and keep the tool', () => {
    const strict = { ...loadSchemaProfile(), keywords: ['type', 'properties'], name: 'impossible' };
    const projection = projectSchema({ type: 'object', properties: { a: { type: 'array' } } }, strict);
    expect(projection).toMatchObject({
      schema: { type: 'object', properties: {}, additionalProperties: true },
      hints: [expect.stringContaining('cannot be shown')],
    });
  });

  it('name each broken rule in the verifier', () => {
    const portable = loadSchemaProfile();
    const broken = {
      type: 'array',
      title: 'x',
      properties: {
        'a.b': { type: ['string', 'null'] },
        c: { type: 'array' },
        d: { type: 'object', required: ['q'] },
        e: { type: 'string', enum: [''] },
        f: { anyOf: [{ type: 'string' }], description: 'd' },
        g: { $ref: '#' },
      },
    };
    expect(profileViolations(broken, portable).length).toBeGreaterThanOrEqual(10);
    expect(
      profileViolations(
        { type: 'object', properties: { a: { anyOf: [{ type: 'string' }, { type: 'number' }] } } },
        loadSchemaProfile('flat'),
      ),
    ).toEqual(['a union is not allowed']);
    expect(profileViolations({ type: 'object' }, portable)).not.toEqual([]);
  });
});

describe('the limit of 4 KB', () => {
  it('cuts texts, then variants, then depth, but never names in the first two levels', () => {
    const leaf = (text: number): Schema => ({ type: 'string', description: 'y'.repeat(text) });
    const inner = (names: number): Schema => ({
      type: 'object',
      properties: Object.fromEntries(Array.from({ length: names }, (_, index) => [`inner_${index}`, leaf(200)])),
      required: ['inner_0'],
    });
    const outer = {
      type: 'object',
      properties: Object.fromEntries(
        Array.from({ length: 20 }, (_, index) => [
          `outer_${index}`,
          {
            type: 'object',
            properties: { deep: inner(10), other: { anyOf: [inner(4), inner(5)] } },
            required: ['deep'],
            description: 'z'.repeat(500),
          },
        ]),
      ),
      required: ['outer_1'],
    };
    const projection = shown(outer);
    expect(JSON.stringify(projection.schema).length).toBeLessThan(12_000);
    expect(projection.schema.required).toEqual(['outer_1']);
    const first = (projection.schema.properties as Record<string, Schema>).outer_7;
    expect(first).toMatchObject({ required: ['deep'], properties: { deep: { type: 'object' } } });
    expect(projection.log.map(({ transform }) => transform)).toContain('budget');
  });
});

describe('lifting', () => {
  it('reads arguments in each form that hosts send', () => {
    expect([undefined, null, '{"a":1}', { a: 1 }].map(readArguments)).toEqual([{}, {}, { a: 1 }, { a: 1 }]);
    expect([5, '[1]', 'x', '{broken', [1]].map(readArguments)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });

  it('never rounds a number in JSON text', () => {
    expect(readArguments('{"id":12345678901234567890}')).toBeUndefined();
    expect(readArguments('{"id":"12345678901234567890"}')).toEqual({ id: '12345678901234567890' });
  });

  it('returns the same object if nothing was renamed, and does not change free maps', () => {
    const projection = shown({
      type: 'object',
      properties: {
        'a.b': { type: 'string' },
        map: { type: 'object', additionalProperties: { type: 'string' } },
        l: { type: 'array', items: { type: 'object', properties: { 'c.d': {} } } },
      },
    });
    const args = { map: { a_b: 'x' }, l: [{ e: 1 }] };
    expect(projection.lift(args)).toEqual({ args, changed: false });
    expect(projection.lift(args).args).toBe(args);
    expect(projection.lift({ a_b: '1', l: [{ c_d: 2 }] }).args).toEqual({ 'a.b': '1', l: [{ 'c.d': 2 }] });
  });

  it('does not merge a value in both spellings', () => {
    expect(shown({ type: 'object', properties: { 'a.b': {} } }).lift({ 'a.b': 1, a_b: 2 }).args).toEqual({
      'a.b': 1,
      a_b: 2,
    });
  });

  it('keeps a key called __proto__ as a key', () => {
    const lifted = shown({ type: 'object', properties: { 'a.b': {} } }).lift(
      JSON.parse('{"a_b":1,"__proto__":{"x":1}}') as Schema,
    ).args;
    expect(Object.keys(lifted)).toEqual(['a.b', '__proto__']);
    expect(({} as Schema).x).toBeUndefined();
  });
});

describe('pinned arguments', () => {
  it('are neither declared nor required, at the root and in its branches only', () => {
    const schema = {
      $ref: '#/$defs/A',
      $defs: {
        A: {
          type: 'object',
          properties: { p: { type: 'string' }, q: { type: 'object', properties: { p: {} } } },
          required: ['p', 'q'],
          anyOf: [{ required: ['p'] }],
          then: { required: ['p'] },
        },
      },
    };
    const before = JSON.stringify(schema);
    expect(withoutPinned(schema, ['p'])).toMatchObject({
      properties: { q: { properties: { p: {} } } },
      required: ['q'],
      anyOf: [{ required: [] }],
      then: { required: [] },
    });
    expect(withoutPinned(schema, ['p']).properties).not.toHaveProperty('p');
    expect(JSON.stringify(schema)).toBe(before);
    expect(withoutPinned(schema, [])).toBe(schema);
    expect(withoutPinned({ $ref: '#' }, ['p'])).toEqual({ $ref: '#' });
  });
});

describe('every projection', () => {
  const name = fc.oneof(
    fc.constantFrom('a', 'b_c', 'type', 'items', 'a.b', '$x', 'a b', 'required'),
    fc.string({ minLength: 0, maxLength: 8 }),
  );
  const scalar = fc.constantFrom<Schema>(
    { type: 'string' },
    { type: 'integer', minimum: 1 },
    { type: 'boolean' },
    { enum: ['a', 'b', ''] },
    { enum: [1, 2] },
    { const: 'k' },
    { type: ['string', 'null'] },
    { type: ['string', 'number', 'null'], nullable: true },
    {},
    { type: 'string', format: 'uri', default: 'x' },
    { not: {} },
    { type: 'null' },
    { $ref: '#/properties/a' },
    { $ref: '#/$defs/none' },
  );
  const { node } = fc.letrec<{ node: Schema; object: Schema }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      scalar,
      tie('object'),
      fc.record({ type: fc.constant('array'), items: tie('node') }),
      fc.record({ anyOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }) }),
      fc.record({ oneOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }), description: fc.string() }),
      fc.record({ allOf: fc.array(tie('node'), { maxLength: 3 }) }),
      fc.record({ type: fc.constant('array'), prefixItems: fc.array(tie('node'), { maxLength: 2 }) }),
      fc.record({ type: fc.constant('object'), additionalProperties: fc.oneof(tie('node'), fc.boolean()) }),
      fc.record({ if: tie('node'), then: tie('node'), not: tie('node') }),
    ),
    object: fc.record(
      {
        type: fc.constant('object'),
        properties: fc.dictionary(name, tie('node'), { maxKeys: 4 }),
        required: fc.array(name, { maxLength: 2 }),
      },
      { requiredKeys: ['type', 'properties'] },
    ),
  }));
  const schemas = fc.record(
    {
      type: fc.constant('object'),
      properties: fc.dictionary(name, node, { maxKeys: 5 }),
      required: fc.array(name, { maxLength: 3 }),
      anyOf: fc.array(node, { minLength: 1, maxLength: 2 }),
    },
    { requiredKeys: ['properties'] },
  ) as fc.Arbitrary<Schema>;

  it('follows its profile, is deterministic and does not change the input', () => {
    fc.assert(
      fc.property(schemas, fc.constantFrom(...PROFILES), (schema, profile) => {
        const before = JSON.stringify(schema);
        const projection = projectSchema(schema, loadSchemaProfile(profile));
        expect(JSON.stringify(schema)).toBe(before);
        if ('quarantined' in projection) return;
        expect(projection.log.some(({ transform }) => transform === 'fallback')).toBe(false);
        expect(profileViolations(projection.schema, loadSchemaProfile(profile))).toEqual([]);
        expect(
          JSON.stringify(
            (projectSchema(JSON.parse(before) as Schema, loadSchemaProfile(profile)) as Projection).schema,
          ),
        ).toBe(JSON.stringify(projection.schema));
      }),
      { numRuns: roundsOf(600, 60) },
    );
  });

  it('is its own projection', () => {
    fc.assert(
      fc.property(schemas, fc.constantFrom('portable', 'flat', 'nova', 'gemini-legacy'), (schema, profile) => {
        const once = projectSchema(schema, loadSchemaProfile(profile));
        // A closed object without names is shown like an open one, and a second projection starts from shorter texts.
        if (
          'quarantined' in once ||
          once.log.some(({ transform }) => transform === 'budget') ||
          /"properties":\{\}(?!,"additionalProperties")/.test(
            JSON.stringify([once.schema.properties, once.schema.additionalProperties]),
          )
        )
          return;
        expect(shown(once.schema, profile).schema).toEqual(once.schema);
      }),
      { numRuns: roundsOf(300, 60) },
    );
  });

  it('never throws for any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(...PROFILES), (value, profile) => {
        expect(projectSchema(value as Schema, loadSchemaProfile(profile))).toBeTypeOf('object');
      }),
      { numRuns: roundsOf(500, 60) },
    );
  });

  it('is lifted to valid arguments if nothing was widened', () => {
    fc.assert(
      fc.property(schemas, fc.boolean(), (schema, full) => {
        const projection = projectSchema(schema, loadSchemaProfile());
        if (
          'quarantined' in projection ||
          schema.anyOf !== undefined ||
          projection.log.some(({ effect }) => effect === 'widen' || effect === 'repair') ||
          /"not"|"const"|"enum"|minimum|format|\$ref/.test(JSON.stringify(schema))
        )
          return;
        const args = instanceOf(projection.schema, full) as Schema;
        expect(createValidator(schema).check(projection.lift(args).args)).toEqual([]);
      }),
      { numRuns: roundsOf(600, 60) },
    );
  });
});
