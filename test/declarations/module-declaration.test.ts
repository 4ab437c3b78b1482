import { describe, expect, it } from 'vitest';
import { type DeclaredTool, moduleDeclaration } from '../../facade/code/declarations/module-declaration.ts';
import { valueLiteral } from '../../facade/code/declarations/source-text.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { declare, typeErrors } from './type-check.ts';

type Schema = Record<string, unknown>;

/** Returns the type of the member `x` of an input, without its indentation. */
async function typeOf(x: unknown): Promise<string> {
  const text = await declare('s', [tool({ properties: { x }, required: ['x'] })]);
  const found = /interface TInput \{\s+(?:\/\*\*.*\*\/\s+)?x: ([\s\S]*?);?\s+\}\n {2}(?:interface|type|export)/.exec(
    text,
  );
  return (found?.[1] ?? text).replace(/\n\s*/g, ' ');
}

function tool(inputSchema: Schema, more: Partial<DeclaredTool> = {}): DeclaredTool {
  return { name: 't', inputSchema: { type: 'object', ...inputSchema }, ...more };
}

const text = { type: 'string' };
const RECURSIVE = {
  type: 'object',
  properties: { tree: { $ref: '#/$defs/Node' } },
  required: ['tree'],
  $defs: {
    Node: {
      description: 'A node.',
      type: 'object',
      properties: {
        value: {},
        children: { type: 'array', items: { $ref: '#/$defs/Node' } },
        map: { $ref: '#/$defs/Map' },
      },
      required: ['value'],
    },
    Map: { type: 'object', additionalProperties: { anyOf: [{ $ref: '#/$defs/Map' }, text] } },
  },
};

/** A schema of one member, its type, values that it accepts, and values of a wrong type. */
const CASES: readonly (readonly [Schema | boolean, string, readonly unknown[], readonly unknown[]])[] = [
  [text, 'string', ['a'], [1, null]],
  [{ type: 'integer' }, 'number', [1], ['1']],
  [{ type: ['string', 'null'] }, 'string | null', ['a', null], [1]],
  [{ type: 'string', nullable: true }, 'string | null', [null], [1]],
  [{ enum: ['a', 'b\n', 1, null, true] }, '"a" | "b\\n" | 1 | true | null', ['b\n', 1, null, true], ['c', 2, false]],
  [{ const: { a: [1, 'b'] } }, '{ a: [1, "b"] }', [{ a: [1, 'b'] }], [{ a: [2, 'b'] }, {}]],
  [
    { type: 'array', items: { anyOf: [text, { type: 'number' }] } },
    '(string | number)[]',
    [['a', 1], []],
    ['a', [true]],
  ],
  [{ type: 'array', items: { type: 'array', items: text } }, 'string[][]', [[['a']]], [['a']]],
  [{ anyOf: [text, { type: 'null' }] }, 'string | null', ['a', null], [1]],
  [{ oneOf: [{ type: 'null' }, { type: 'array', items: text }] }, 'string[] | null', [null, ['a']], [[1]]],
  [
    { type: 'array', prefixItems: [text, { type: 'number' }] },
    '[string?, number?, ...unknown[]]',
    [[], ['a', 1, true]],
    [[1]],
  ],
  [
    { type: 'array', prefixItems: [text, { type: 'number' }], items: false, minItems: 2 },
    '[string, number]',
    [['a', 1]],
    [['a'], ['a', 1, 2]],
  ],
  [
    { type: 'array', items: [text, { type: ['number', 'null'] }] },
    '[string?, (number | null)?, ...unknown[]]',
    [['a', null]],
    [[1]],
  ],
  [{}, 'unknown', ['a', 1, null, [], {}], []],
  [false, 'never', [], ['a', null]],
  [{ type: 'object' }, '{ [name: string]: unknown }', [{}, { a: 1 }], ['a']],
  [{ type: 'object', additionalProperties: false }, 'Record<string, never>', [{}], [{ a: 1 }, 'a']],
  [
    { type: 'object', additionalProperties: { type: 'number' } },
    '{ [name: string]: number }',
    [{ a: 1 }],
    [{ a: 'b' }],
  ],
  [
    { type: 'object', patternProperties: { '^x-': text, '^n-': { type: 'number' } }, additionalProperties: false },
    '{ [name: string]: string | number }',
    [{ 'x-a': 'b', 'n-a': 1 }],
    [{ 'x-a': true }],
  ],
  [
    { type: 'object', properties: { a: { type: 'number' } }, additionalProperties: text },
    '{ a?: number; [name: string]: unknown }',
    [{ a: 1, b: 'c' }],
    [{ a: 'b' }],
  ],
  [
    { type: 'object', propertyNames: { enum: ['a', 'b'] }, additionalProperties: { type: 'number' } },
    '{ [name in "a" | "b"]?: number }',
    [{}, { a: 1 }],
    [{ c: 1 }, { a: 'b' }],
  ],
  [
    { type: 'object', properties: { a: text, b: text }, anyOf: [{ required: ['a'] }, { required: ['b'] }] },
    '{ a?: string; b?: string } & ({ a: unknown } | { b: unknown })',
    [{ a: 'c' }, { b: 'c' }, { a: 'c', b: 'c' }],
    [{}, { a: 1 }],
  ],
  [
    { allOf: [{ properties: { a: text }, required: ['a'] }, { properties: { b: { type: 'number' } } }] },
    '{ a: string } & { b?: number }',
    [{ a: 'c' }, { a: 'c', b: 1 }],
    [{ b: 1 }, { a: 'c', b: 'd' }],
  ],
  [
    { type: 'object', oneOf: [{ properties: { a: text }, required: ['a'] }, {}] },
    '{ a: string } | {}',
    [{ a: 'b' }, {}],
    [],
  ],
  [{ type: 'string', anyOf: [{ format: 'uri' }, { pattern: '^x' }] }, 'string', ['xa'], [1]],
  [
    { type: 'object', properties: { 'a b': text, delete: text, '3d': text }, required: ['3d'] },
    '{ "3d": string; "a b"?: string; delete?: string }',
    [{ '3d': 'a' }, { '3d': 'a', 'a b': 'c', delete: 'd' }],
    [{ 'a b': 'c' }],
  ],
  [
    { type: 'object', properties: JSON.parse('{"__proto__":{"type":"number"}}') as Schema },
    '{ ["__proto__"]?: number }',
    [JSON.parse('{"__proto__":1}')],
    [JSON.parse('{"__proto__":"a"}')],
  ],
  [{ type: 'object', required: ['a'] }, '{ a: unknown }', [{ a: 1 }], [{}]],
];

describe('the type of a schema' + verifies('CM-12'), () => {
  it.each(CASES)('%j is %s', async (schema, type) => {
    expect(await typeOf(schema)).toBe(type);
  });

  it('has the values that the schema accepts, and no others', async () => {
    const tools = CASES.map(([x], at) => ({ ...tool({ properties: { x }, required: ['x'] }), name: `t${at}` }));
    const call = (at: number, x: unknown): string => `s.t${at}(${valueLiteral({ x })});`;
    const head = "import * as s from 'host:mcp-s';";
    const good = CASES.flatMap(([, , accepted], at) => accepted.map((x) => call(at, x)));
    const bad = CASES.flatMap(([, , , refused], at) => refused.map((x) => call(at, x)));
    const errors = typeErrors({
      's.d.ts': await declare('s', tools),
      'good.ts': [head, ...good].join('\n'),
      'bad.ts': [head, ...bad].join('\n'),
    });
    expect(errors.filter(({ file }) => file !== 'bad.ts')).toEqual([]);
    const lines = new Set(errors.map(({ line }) => line));
    expect(bad.filter((_, at) => !lines.has(at + 2))).toEqual([]);
  });

  it('names definitions, which may refer to themselves', async () => {
    expect(await declare('s', [{ name: 'grow', inputSchema: RECURSIVE }])).toContain(`\
  interface GrowInput { tree: GrowInputNode }
  /** A node. */
  interface GrowInputNode { value: unknown; children?: GrowInputNode[]; map?: GrowInputMap }
  interface GrowInputMap { [name: string]: GrowInputMap | string }
`);
  });

  it('says in comments what it cannot express, and no bounds that every integer has', async () => {
    const x = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 5, description: 'How\n many.' };
    const y = { type: 'string', format: 'date', pattern: '^[0-9]+$' };
    expect(await declare('s', [tool({ properties: { x, y } })])).toContain(`\
  interface TInput {
    /** How many. (>= 1; default 5) */
    x?: number;
    /** (format: date) */
    y?: string;
  }
`);
  });
});

describe('the declaration of a module' + verifies('CM-11'), () => {
  const tools: readonly DeclaredTool[] = [
    {
      ...tool({ properties: { path: text }, required: ['path'] }),
      name: 'read-file',
      description: 'Reads a file.',
      annotations: { readOnlyHint: true },
      condition: 'paths outside src need an approval',
      outputSchema: { type: 'object', properties: { size: { type: 'number' }, more: {} }, required: ['size'] },
    },
    { ...tool({ properties: { all: { type: 'boolean' } } }), name: 'list', annotations: { destructiveHint: false } },
    {
      ...tool({ properties: { path: text }, required: ['path'] }),
      name: 'delete',
      annotations: { readOnlyHint: false },
    },
  ];

  it('has each function with its types, its effect and its condition, in the order of names', async () => {
    const declared = await declare('files', tools);
    expect(await declare('files', [...tools].reverse())).toBe(declared);
    expect(declared).toBe(`\
declare module "host:mcp-files" {
  // f(x) returns the value, f.async(x) a promise of it. A call that fails returns an error, it does not throw.
  type ToolError = { error: string; code?: string };
  type ToolFunction<A extends unknown[], R> = {
    (...args: A): R | ToolError;
    async(...args: A): Promise<R | ToolError>;
  };

  interface DeleteInput { path: string }
  /** Effect: writes, may destroy. */
  export const delete_: ToolFunction<[DeleteInput], any>;

  interface ListInput { all?: boolean }
  /** Effect: writes. */
  export const list: ToolFunction<[ListInput?], any>;

  interface ReadFileInput { path: string }
  interface ReadFileOutput { size: number; more?: any }
  /**
   * Reads a file.
   * Effect: reads.
   * Condition: paths outside src need an approval
   */
  export const read_file: ToolFunction<[ReadFileInput], ReadFileOutput>;
}
`);
  });

  it('lets code call each function in both ways, without an argument if none is required', async () => {
    const code = `\
import { delete_, list, read_file } from 'host:mcp-files';
const read = read_file({ path: 'a' });
if (!('error' in read)) read.size.toFixed();
list();
list({}).anything;
list.async().then((found) => found.anything);
read_file.async({ path: 'a' }).then((found) => ('error' in found ? found.code?.trim() : found.more.anything));
read_file();
read_file.async();
read_file({ path: 1 });
read_file({ path: 'a' }).size;
delete_({ path: 'a', paht: 'b' });
`;
    const errors = typeErrors({ 'files.d.ts': await declare('files', tools), 'code.ts': code });
    expect(errors.map(({ file, line }) => `${file}:${line}`)).toEqual(
      [8, 9, 10, 11, 12].map((line) => `code.ts:${line}`),
    );
  });

  it('compiles for names that types, modules and members could have in common', async () => {
    const names = [
      'tool',
      'tool_',
      'Tool',
      'to-ol',
      'promise',
      'Promise',
      'record',
      'p',
      'get_x',
      'getX',
      'get-X',
      '1',
      'type',
      'any',
      'string',
    ];
    const properties = {
      error: { $ref: '#/$defs/Error' },
      function: { $ref: '#/$defs/Function' },
      self: { $ref: '#' },
      new: text,
      readonly: text,
      get: text,
    };
    const $defs = {
      Error: { type: 'object', properties: { a: text } },
      Function: { type: 'array', items: {} },
      Input: { type: 'object' },
    };
    const made = names.map((name) => ({
      ...tool({ properties, $defs }),
      name,
      outputSchema: { type: 'object', properties, $defs },
    }));
    const both = { 'one.d.ts': await declare('one', made), 'two.d.ts': await declare('two', made) };
    expect(typeErrors(both)).toEqual([]);
    expect(both['one.d.ts']).toContain('interface GetXInput2 ');
  });

  it('compiles without tools', async () => {
    expect(typeErrors({ 'none.d.ts': await moduleDeclaration({ name: 'host:mcp-none', tools: [] }) })).toEqual([]);
  });
});

describe('texts and schemas of a hostile server' + verifies('CM-13', 'HA-22'), () => {
  const EVIL = 'a */ export const evil: 1; /* \u202e\u200b*\u200b/\u2028b\u001b[2J\u{e0041}\r\n * / `${x}` "\\';

  it('cannot end a comment or a string, or hide', async () => {
    const x = { description: EVIL, enum: [EVIL, '"', '\\'], default: EVIL };
    const y = { type: 'string', pattern: '.*/', format: EVIL };
    const schema = {
      description: EVIL,
      properties: { [EVIL]: x, y },
      required: [EVIL],
      patternProperties: { '.*/ }': text },
    };
    const made = {
      ...tool(schema, { description: EVIL, condition: EVIL, outputSchema: { type: 'object', ...schema } }),
      name: EVIL,
    };
    const declared = await declare('"];\n\u202e{', [made]);
    expect(typeErrors({ 's.d.ts': declared })).toEqual([]);
    expect(declared.match(/^ *export .*/gm)).toEqual([
      expect.stringMatching(/^ {2}export const a_export_const_evil_1_b_2J/),
    ]);
    expect(declared).not.toMatch(/[^\P{C}\n]|[\u2028\u2029]/u);
  });

  it('are cut: descriptions at 2,000 characters', async () => {
    const long = tool(
      { properties: { x: { description: 'y'.repeat(5_000) } } },
      { description: 'z'.repeat(1_000_000) },
    );
    const declared = await declare('s', [long]);
    expect(declared).toContain(` ${'z'.repeat(1_999)}… `);
    expect(declared).toContain(` ${'y'.repeat(1_999)}… `);
  });

  const wide = (count: number, value: unknown): Schema =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`member_${at}`, value]));
  let deep: Schema = text;
  for (let level = 0; level < 10_000; level += 1) deep = { type: 'object', properties: { a: deep } };
  const cyclic: Schema = { type: 'object', properties: {} };
  (cyclic.properties as Schema).me = cyclic;
  const bomb = Object.fromEntries(
    Array.from({ length: 40 }, (_, at) => [
      `d${at}`,
      { type: 'object', properties: wide(5, { $ref: `#/$defs/d${at + 1}` }) },
    ]),
  );
  const CHAIN = roundsOf(3_000, 1_000);
  const chain = Object.fromEntries(
    Array.from({ length: CHAIN }, (_, at) => [
      `d${at}`,
      { type: 'object', properties: { next: { $ref: `#/$defs/d${(at + 1) % CHAIN}` } } },
    ]),
  );
  const LARGE: readonly (readonly [string, Schema, RegExp])[] = [
    [
      'of 1 MB',
      { type: 'object', properties: wide(50_000, text) },
      /The type cannot be shown\. Errors name what is wrong\./,
    ],
    ['10,000 deep', { type: 'object', properties: { deep } }, /The type cannot be shown/],
    ['that contains itself in memory', cyclic, /The type cannot be shown/],
    [
      'that unfolds without end',
      { type: 'object', properties: { x: { $ref: '#/$defs/d0' } }, $defs: bomb },
      /interface TInput|cannot be shown/,
    ],
    [
      'with a chain of references',
      { type: 'object', properties: { x: { $ref: '#/$defs/d0' } }, $defs: chain },
      /interface TInput|cannot be shown/,
    ],
    ['with many members', { type: 'object', properties: wide(3_000, text) }, /The type cannot be shown|member_2999/],
    [
      'with many descriptions',
      { type: 'object', properties: wide(100, { ...text, description: 'x'.repeat(1_000) }) },
      /Shortened[\s\S]*member_99\?: string;/,
    ],
    [
      'with many levels',
      {
        type: 'object',
        properties: wide(30, { type: 'object', properties: wide(30, { type: 'object', properties: wide(8, text) }) }),
      },
      /Shortened[\s\S]*member_29\?: unknown;/,
    ],
    [
      'with a long enum',
      {
        type: 'object',
        properties: { a: text, x: { enum: Array.from({ length: 10_000 }, (_, at) => `value ${at}`) } },
      },
      /cannot be shown/,
    ],
  ];
  const declareBoth = (schema: Schema): Promise<string> =>
    declare('s', [{ name: 't', inputSchema: schema, outputSchema: schema }]);

  it.each(partOf(LARGE, 3))('a schema %s gives at most 64 kB', async (_what, schema, expected) => {
    const declared = await declareBoth(schema);
    expect(Buffer.byteLength(declared)).toBeLessThan(66_000);
    expect(declared).toMatch(expected);
  });

  inFull('and all of these compile', async () => {
    const files: Record<string, string> = {};
    for (const [at, [, schema]] of LARGE.entries())
      files[`s${at}.d.ts`] = (await declareBoth(schema)).replace('mcp-s', `mcp-s${at}`);
    expect(typeErrors(files)).toEqual([]);
  });
});
