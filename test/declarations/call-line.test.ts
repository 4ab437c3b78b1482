import { describe, expect, it } from 'vitest';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { exampleOf } from '../../facade/code/declarations/call-example.ts';
import { signatureOf } from '../../facade/code/declarations/call-signature.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

type Schema = Record<string, unknown>;

const text = { type: 'string' };
const ISSUE: Schema = {
  type: 'object',
  properties: { body: text, owner: text, repo: text, title: text, labels: { type: 'array', items: text } },
  required: ['owner', 'repo', 'title'],
};
const NUMBER: Schema = { type: 'object', properties: { number: { type: 'integer' } }, required: ['number'] };

const PROTO = JSON.parse('{"__proto__":{"type":"string"}}') as Schema;

function lineOf(
  inputSchema: Schema,
  { maxLength = 200, outputSchema }: { maxLength?: number; outputSchema?: Schema } = {},
): string {
  const tool = { name: 'f', functionName: 'f', inputSchema, ...(outputSchema === undefined ? {} : { outputSchema }) };
  return signatureOf(tool, maxLength);
}

function exampleFor(properties: unknown, more: Schema = {}): string {
  return exampleOf({ name: 'f', functionName: 'f', inputSchema: { type: 'object', properties, ...more } });
}

describe('a signature' + verifies('CM-14'), () => {
  it('leaves out optional members first, then the returned type, then types, then required members', () => {
    const lines = [200, 90, 80, 60, 45, 30, 20].map((maxLength) => lineOf(ISSUE, { maxLength, outputSchema: NUMBER }));
    expect(lines).toEqual([
      'f({owner: string, repo: string, title: string, body?: string, labels?: string[]}): {number: number}',
      'f({owner: string, repo: string, title: string, body?: string, …}): {number: number}',
      'f({owner: string, repo: string, title: string, …}): {number: number}',
      'f({owner: string, repo: string, title: string, …})',
      'f({owner, repo, title, …})',
      'f({owner, repo, title, …})',
      'f({owner, repo, …})',
    ]);
  });

  it.each<readonly [string, Schema]>([
    ['f()', {}],
    ['f()', { properties: {}, additionalProperties: false }],
    [
      'f({a?: "x" | "y", b?: {c: number, d?: boolean}})',
      {
        properties: {
          a: { enum: ['x', 'y'] },
          b: { type: 'object', properties: { d: { type: 'boolean' }, c: { type: 'number' } }, required: ['c'] },
        },
      },
    ],
    [
      'f({a: string, b?: string})',
      { properties: { a: text, b: text }, required: ['a'], anyOf: [{ required: ['b'] }, {}] },
    ],
    [
      'f({a: string, b?: number})',
      {
        allOf: [{ properties: { a: text }, required: ['a'] }],
        oneOf: [{ properties: { b: { type: 'number' } }, required: ['b'] }, {}],
      },
    ],
    [
      'f({a: {next?: {next?: {next?: {…}}}}})',
      {
        properties: { a: { $ref: '#/$defs/A' } },
        required: ['a'],
        $defs: { A: { type: 'object', properties: { next: { $ref: '#/$defs/A' } } } },
      },
    ],
    [
      'f({"a b": string, ["__proto__"]?: any})',
      { properties: JSON.parse('{"__proto__":{},"a b":{"type":"string"}}'), required: ['a b'] },
    ],
    [
      'f({a?: {…}, b?: …[]})',
      {
        properties: {
          a: {
            type: 'object',
            properties: Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`m${at}`, text])),
          },
          b: { type: 'array', items: { enum: Array.from({ length: 30 }, (_, at) => `m${at}`) } },
        },
      },
    ],
  ])('%s', (line, schema) => {
    expect(lineOf({ type: 'object', ...schema })).toBe(line);
  });

  inFull('has at most its length for any schema, and soon', () => {
    const wide = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`member_${at}`, { $ref: '#/$defs/A' }]));
    const A = { type: 'object', properties: Object.fromEntries(Object.entries(wide).slice(0, 5_000)) };
    for (const required of [[], Object.keys(wide), ['x'.repeat(1_000)]])
      for (const maxLength of [20, 200]) {
        const schema = { type: 'object', properties: wide, required, $defs: { A } };
        expect(lineOf(schema, { maxLength }).length).toBeLessThanOrEqual(maxLength);
      }
    expect(lineOf({ $ref: 'https://example.com' })).toBe('f({…})');
  });
});

describe('an example' + verifies('CM-14'), () => {
  it.each<readonly [string, Schema, Schema]>([
    ['f()', { a: text }, {}],
    [
      'f({a: "…", b: 1, c: true, d: [], e: {}, g: null})',
      {
        a: text,
        b: { type: 'integer' },
        c: { type: 'boolean' },
        d: { type: 'array' },
        e: { type: 'object' },
        g: { type: 'null' },
        h: text,
      },
      { required: ['a', 'b', 'c', 'd', 'e', 'g'] },
    ],
    [
      'f({a: "x", b: "y", c: "z", d: 5})',
      {
        a: { enum: ['x', 'w'] },
        b: { const: 'y' },
        c: { type: 'string', examples: ['z'] },
        d: { type: 'number', default: 5 },
      },
      { required: ['a', 'b', 'c', 'd'] },
    ],
    [
      'f({a: 10, b: -5, c: 0.5, d: 4})',
      {
        a: { type: 'integer', minimum: 10 },
        b: { type: 'number', maximum: -5 },
        c: { type: 'number', maximum: 0.5 },
        d: { type: 'integer', multipleOf: 4 },
      },
      { required: ['a', 'b', 'c', 'd'] },
    ],
    [
      'f({a: "2026-01-31", b: "https://example.com", c: "……"})',
      {
        a: { type: 'string', format: 'date' },
        b: { type: 'string', format: 'uri' },
        c: { type: 'string', minLength: 2 },
      },
      { required: ['a', 'b', 'c'] },
    ],
    [
      'f({a: {"b c": "…"}, d: ["…", "…"]})',
      {
        a: { type: 'object', properties: { 'b c': text, e: text }, required: ['b c'] },
        d: { type: 'array', items: text, minItems: 2 },
      },
      { required: ['a', 'd'] },
    ],
    [
      'f({b: "…", a: "…"})',
      { a: text, b: { anyOf: [{ type: 'null' }, text] } },
      { allOf: [{ required: ['b'] }], anyOf: [{ required: ['a'] }, { required: ['c'] }] },
    ],
    [
      'f({a: {x: 1}})',
      { a: { $ref: '#/$defs/A' } },
      { required: ['a'], $defs: { A: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'] } } },
    ],
    ['f({["__proto__"]: "…"})', PROTO, { required: ['__proto__'] }],
  ])('%s', (example, properties, more) => {
    expect(exampleFor(properties, more)).toBe(example);
    const args = new Function('f', `return ${example}`)((given: unknown = {}) => given) as unknown;
    expect(createValidator({ type: 'object', properties, ...more }).check(args)).toEqual([]);
  });

  it('is short for any schema, and soon', () => {
    const A = {
      type: 'object',
      properties: Object.fromEntries('abcdefgh'.split('').map((name) => [name, { $ref: '#/$defs/A' }])),
      required: 'abcdefgh'.split(''),
    };
    const long = exampleFor({ a: { $ref: '#/$defs/A' } }, { required: ['a'], $defs: { A } });
    expect(long.length).toBeLessThan(1_010);
    expect(exampleFor({ a: { type: 'string', default: 'x'.repeat(500) } }, { required: ['a'] })).toBe('f({a: "…"})');
    expect(exampleFor({ a: { $ref: 'https://example.com' } })).toBe('f()');
  });
});
