import { describe, expect, it } from 'vitest';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { readArguments } from '../../catalogs/projection/argument-lifting.ts';
import { profileViolations } from '../../catalogs/projection/profile-violations.ts';
import { type Projection, projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { toolDescription } from '../../catalogs/text/hostile-text.ts';
import { exposedName, exposedNames } from '../../catalogs/tools/exposed-names.ts';
import { repairArguments } from '../../catalogs/validation/argument-repair.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { verifies } from '../verifies.ts';
import { readCases } from './corpus.ts';

interface SchemaCase {
  readonly id: string;
  readonly tool_name?: string;
  readonly tool_names?: readonly string[];
  readonly input_schema: Record<string, unknown>;
  readonly expected: {
    readonly class: string;
    readonly profile?: string;
    readonly portable?: Record<string, unknown>;
    readonly portable_openai?: Record<string, unknown>;
    readonly validator?: Record<string, unknown>;
    readonly unmap?: readonly { readonly model: unknown; readonly upstream: Record<string, unknown> }[];
    readonly reject?: readonly Record<string, unknown>[];
    readonly assert_?: readonly string[];
  };
}

const cases = readCases<SchemaCase>('schema-cases.json', ['input_schema', 'expected']);

/** Schemas that the corpus only describes. */
function schemaOf(raw: Record<string, unknown> | null): Record<string, unknown> {
  if (raw?.$generate === 'nest') {
    let node = raw.leaf as Record<string, unknown>;
    for (let depth = 0; depth < Number(raw.depth); depth += 1) node = { type: 'object', properties: { a: node } };
    return node;
  }
  if (raw?.$generate === 'tools') return { type: 'object', properties: {} };
  return raw as Record<string, unknown>;
}

/** Returns the shape of a schema, without texts. All forms of "any value" are equal. */
function shapeOf(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(shapeOf);
  if (typeof node !== 'object' || node === null) return node;
  const { description: text, ...rest } = node as Record<string, unknown>;
  if (typeof text !== 'string' && text !== undefined)
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, shapeOf(value)]));
  const types = Array.isArray(rest.anyOf) ? rest.anyOf.map((branch: Record<string, unknown>) => branch.type) : [];
  if (['string', 'number', 'boolean'].every((type) => types.includes(type))) return 'ANY';
  const entries = Object.entries(rest).filter(
    ([key, value]) => !(key === 'required' && Array.isArray(value) && value.length === 0),
  );
  return Object.fromEntries(
    entries.map(([key, value]) => [
      key,
      key === 'required' ? [...(value as string[])].sort() : key === 'enum' ? value : shapeOf(value),
    ]),
  );
}

/**
 * Returns the expected schema in strict mode: closed, with every property required. The corpus says what allows null.
 */
function strict(schema: Record<string, unknown>): Record<string, unknown> {
  return { ...schema, required: Object.keys(schema.properties as object), additionalProperties: false };
}

function projected(test: SchemaCase, profile = test.expected.profile ?? 'portable'): Projection {
  const projection = projectSchema(schemaOf(test.input_schema), loadSchemaProfile(profile));
  if ('quarantined' in projection) throw new Error(projection.quarantined);
  return projection;
}

/** Processes arguments as a call does: reads, lifts, validates, repairs and validates them. */
function callWith(test: SchemaCase, projection: Projection, model: unknown): unknown {
  const args = readArguments(model);
  if (args === undefined) return 'no object';
  const schema = schemaOf(test.input_schema);
  const { args: lifted } = projection.lift(args);
  const faults = createValidator(schema).check(lifted);
  if (faults.length === 0) return lifted;
  const repair = repairArguments(schema, lifted, faults);
  return repair === undefined ? faults : repair.value;
}

describe('schemas that real providers refused' + verifies('CY-14'), () => {
  it('are in the corpus', () => {
    for (const { id, expected } of cases)
      expect(
        ['widen', 'lossless', 'rename', 'repair', 'encode', 'annotation', 'pass', 'facade', 'narrow', 'quarantine'],
        id,
      ).toContain(expected.class);
  });

  for (const test of cases.filter(({ expected }) => expected.class !== 'quarantine' && expected.class !== 'facade')) {
    it(`${test.id}: the projection has the expected shape`, () => {
      const projection = projected(test);
      expect(profileViolations(projection.schema, loadSchemaProfile(test.expected.profile ?? 'portable'))).toEqual([]);
      if (test.expected.portable !== undefined)
        expect(shapeOf(projection.schema)).toEqual(shapeOf(test.expected.portable));
      if (test.expected.portable_openai !== undefined)
        expect(shapeOf(projected(test, 'openai').schema)).toEqual(shapeOf(strict(test.expected.portable_openai)));
    });
  }

  for (const test of cases.filter(({ expected }) => expected.unmap !== undefined || expected.reject !== undefined)) {
    it(`${test.id}: valid arguments are lifted back, invalid ones are refused`, () => {
      const projection = projected(test);
      for (const { model, upstream } of test.expected.unmap ?? [])
        expect(callWith(test, projection, model)).toEqual(upstream);
      for (const refused of test.expected.reject ?? []) {
        const outcome = callWith(test, projection, refused);
        expect(Array.isArray(outcome) && outcome.length > 0, JSON.stringify(outcome)).toBe(true);
      }
    });
  }

  for (const test of cases.filter(({ expected }) => expected.validator !== undefined)) {
    it(`${test.id}: the validator agrees with the repaired original`, () => {
      const samples = [
        ...(test.expected.unmap ?? []).map(({ upstream }) => upstream),
        ...(test.expected.reject ?? []),
        {},
        { stmt: 1 },
        { q: 1 },
      ];
      const ours = samples.map((sample) => createValidator(schemaOf(test.input_schema)).check(sample).length === 0);
      const theirs = samples.map((sample) => createValidator(test.expected.validator).check(sample).length === 0);
      expect(ours).toEqual(theirs);
    });
  }

  for (const test of cases.filter(({ expected }) => expected.class === 'quarantine')) {
    it(`${test.id}: only that tool is quarantined`, () => {
      for (const profile of ['portable', 'flat', 'faithful']) {
        expect(projectSchema(schemaOf(test.input_schema), loadSchemaProfile(profile))).toHaveProperty('quarantined');
      }
    });
  }
});

describe('names that real providers refused' + verifies('CY-04', 'PF-06'), () => {
  const legal = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;

  for (const test of cases.filter(
    ({ expected, tool_name: name, tool_names: several }) =>
      several !== undefined || (expected.class === 'rename' && name !== undefined),
  )) {
    it(test.id, () => {
      const tools = (test.tool_names ?? [test.tool_name ?? 'x']).map((tool) => ({ server: 'srv', tool }));
      const { names, collisions } = exposedNames(tools);
      expect(collisions).toEqual([]);
      expect(names.size).toBe(tools.length);
      for (const [name, target] of names) {
        expect(name).toMatch(legal);
        expect(name).toBe(exposedName(target.server, target.tool));
      }
      expect(exposedNames([...tools].reverse()).names.size).toBe(names.size);
    });
  }

  it('toolname-duplicate: one tool name on two servers becomes two names', () => {
    const { names } = exposedNames([
      { server: 'a', tool: 'get_guide' },
      { server: 'b', tool: 'get_guide' },
    ]);
    expect([...names.keys()]).toEqual(['a_get_guide', 'b_get_guide']);
  });

  it('description-*: a description is never empty and never longer than 1,024 characters' + verifies('HA-22'), () => {
    expect(toolDescription({ name: 'get_time', description: '' })).toBe('Tool get time.');
    expect(toolDescription({ name: 'x', description: 'word '.repeat(1200) }).length).toBeLessThanOrEqual(1024);
  });
});
