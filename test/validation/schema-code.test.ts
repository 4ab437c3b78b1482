/**
 * Tests the code that the build generates from our own schemas: it accepts only values that the schema accepts.
 * Covers: catalogs/validation.
 */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { CODED_SCHEMAS, codeFile, makeSchemaCode, surelyFits } from '../../catalogs/validation/schema-code.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import { FULL } from '../config/full.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';

const ROOT = packageRoot();
const DIST = path.join(ROOT, 'dist');
const SOUND: Readonly<Record<(typeof CODED_SCHEMAS)[number], unknown>> = {
  'facade/config/tollgate.schema.json': parse(FULL),
  'policies/schemas/rules.json': {
    rules: [
      {
        id: 'look',
        outcome: 'allow',
        message: 'Free.',
        when: { verbs: ['read'], paths: ['src/**'] },
        obligations: { caps: { bytes: 5000 }, labels: ['x'] },
      },
    ],
  },
  'policies/schemas/suite.json': {
    as: { id: 'mia', role: 'developer' },
    cases: [
      { name: 'a', call: { tool: 'read', args: { path: 'a' } }, expect: 'allow' },
      { name: 'b', effect: { verb: 'read', server: 's', tool: 't' }, expect: 'deny', reason: 'r' },
    ],
  },
};

const readSchema = (schema: string): object => JSON.parse(readFileSync(path.join(DIST, schema), 'utf8')) as object;

/** Returns every place of a value, including its root. */
function placesOf(value: unknown, at: readonly string[] = []): readonly (readonly string[])[] {
  const below =
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, one]) => placesOf(one, [...at, key]))
      : [];
  return [at, ...below];
}

/** Returns the value with another value at one place. */
function replaceAt(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  const copy = (Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) }) as Record<string, unknown>;
  Object.defineProperty(copy, key, {
    value: replaceAt(copy[key], rest, by),
    enumerable: true,
    configurable: true,
    writable: true,
  });
  return copy;
}

describe.each(CODED_SCHEMAS)('the generated code of %s', (schema) => {
  const url = pathToFileURL(path.join(DIST, schema));
  const judge = new Ajv({ strict: true, allowUnionTypes: true, allErrors: true }).compile(readSchema(schema));
  const other = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom('', 'allow', 'ask', 'read', '__proto__', -1, 1e9, null, [], {}, [''], ['a', 'a'], {
      __proto__: null,
    }),
  );

  inFull('is in the build, and is generated from the schema next to it', () => {
    expect(readFileSync(codeFile(path.join(DIST, schema)), 'utf8')).toBe(makeSchemaCode(readSchema(schema)));
  });

  it('accepts a valid value, so that nothing is compiled at start', () => {
    expect(surelyFits(url, SOUND[schema])).toBe(true);
  });

  it('agrees with the schema if any part is changed or added', () => {
    const places = placesOf(SOUND[schema]);
    let fitting = 0;
    fc.assert(
      fc.property(
        fc.constantFrom(...places),
        fc.option(
          fc.string().filter((key) => key !== 'length'),
          { nil: undefined },
        ),
        other,
        (at, extra, by) => {
          const value = replaceAt(SOUND[schema], extra === undefined ? at : [...at.slice(0, -1), extra], by);
          const fits = judge(value);
          if (fits) fitting += 1;
          expect(surelyFits(url, value)).toBe(fits);
        },
      ),
      { numRuns: roundsOf(500, 60) },
    );
    expect(fitting).toBeGreaterThan(0);
  });
});

describe('the starters', () => {
  it('are accepted by the generated code', () => {
    const rules = pathToFileURL(path.join(DIST, 'policies/schemas/rules.json'));
    for (const name of ['workspace', 'reviewer', 'ci', 'strict'])
      expect([
        name,
        surelyFits(rules, parse(readFileSync(path.join(ROOT, 'policies', 'starter', `${name}.yaml`), 'utf8'))),
      ]).toEqual([name, true]);
  });
});

describe('without a build', () => {
  it('no value is accepted, and the schema is compiled', () => {
    const source = path.join(ROOT, 'policies', 'schemas', 'rules.json');
    expect(existsSync(codeFile(source))).toBe(false);
    expect(surelyFits(pathToFileURL(source), { rules: [] })).toBe(false);
  });
});
