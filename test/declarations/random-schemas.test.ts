import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { valueLiteral } from '../../facade/code/declarations/source-text.ts';
import { roundsOf } from '../harness/slices.ts';
import { instanceOf } from '../projection/schema-instances.ts';
import { verifies } from '../verifies.ts';
import { declare, typeErrors } from './type-check.ts';

type Schema = Record<string, unknown>;

const SCHEMAS = roundsOf(200, 60);
const NAMES = ['a', 'b', 'two words', 'delete', '3d'] as const;
const name = fc.constantFrom(...NAMES);

const scalar = fc.constantFrom(
  { type: 'string' },
  { type: 'integer' },
  { type: ['string', 'null'] },
  { type: ['array', 'object'], items: { type: 'number' } },
  { type: 'string', minLength: 2 },
  { enum: ['x', 1, null] },
  { const: { a: [1] } },
  { $ref: '#/$defs/Node' },
  {},
);

/** An object that says which names it accepts. */
const closed = (members: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.record({
    type: fc.constant('object'),
    properties: fc.dictionary(name, members, { maxKeys: 3 }),
    required: fc.uniqueArray(name, { maxLength: 2 }),
    additionalProperties: fc.oneof(fc.boolean(), scalar),
  });
/** An object that accepts any other name. */
const open = fc.record(
  {
    type: fc.constant('object'),
    properties: fc.dictionary(name, scalar, { minKeys: 1, maxKeys: 4 }),
    patternProperties: fc.dictionary(fc.constant('^x-'), scalar, { maxKeys: 1 }),
    anyOf: fc.array(fc.record({ required: fc.uniqueArray(name, { maxLength: 2 }) }), { minLength: 1, maxLength: 2 }),
  },
  { requiredKeys: ['type', 'properties'] },
);
const list = (items: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.record(
    {
      type: fc.constant('array'),
      items,
      prefixItems: fc.array(items, { minLength: 1, maxLength: 2 }),
      minItems: fc.nat(2),
    },
    { requiredKeys: ['type'] },
  );
/** Without open objects, which would accept what is meant for another branch, with names that they do not declare. */
const branch = fc.oneof(scalar, closed(scalar), list(fc.oneof(scalar, closed(scalar))));
const branches = fc.array(branch, { minLength: 1, maxLength: 3 });

/** Schemas of one member, of every keyword that has a type. */
const { node } = fc.letrec<{ node: unknown }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 3 },
    scalar,
    open,
    closed(tie('node')),
    list(tie('node')),
    branches.map((anyOf) => ({ anyOf })),
    branches.map((oneOf) => ({ oneOf })),
    fc.array(open, { minLength: 1, maxLength: 2 }).map((allOf) => ({ allOf })),
  ),
}));
const NODE = {
  type: 'object',
  properties: { next: { $ref: '#/$defs/Node' }, size: { type: 'number' } },
  additionalProperties: false,
};

it(`the type of any of ${SCHEMAS} schemas has the values that the schema accepts` + verifies('CM-12'), async () => {
  const schemas = fc
    .sample(node, SCHEMAS)
    .map((x): Schema => ({ type: 'object', properties: { x }, required: ['x'], $defs: { Node: NODE } }));
  const tools = schemas.map((inputSchema, at) => ({ name: `t${at}`, inputSchema }));
  const calls = schemas.flatMap((schema, tool) =>
    fc.sample(fc.array(fc.nat(), { minLength: 50, maxLength: 50 }), 8).flatMap((numbers, turn) => {
      let at = 0;
      const value = instanceOf(schema, turn > 0, (count) => (numbers[at++ % 50] ?? 0) % count);
      const isValid = value !== undefined && createValidator(schema).check(value).length === 0;
      return isValid ? [{ schema, text: `s.t${tool}(${valueLiteral(value)});` }] : [];
    }),
  );
  expect(calls.length).toBeGreaterThan(SCHEMAS);
  const code = ["import * as s from 'host:mcp-s';", ...calls.map(({ text }) => text)].join('\n');
  const errors = typeErrors({ 's.d.ts': await declare('s', tools), 'code.ts': code });
  expect(
    errors.map(({ line, message }) => `${message} ${calls[line - 2]?.text} ${JSON.stringify(calls[line - 2]?.schema)}`),
  ).toEqual([]);
});
