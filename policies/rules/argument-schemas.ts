/** Owns what schemas of arguments say to the tests of a rule: where a dotted path leads, and which values it takes; refuses tests that none of them passes. */
import type { ArgumentTests } from './argument-tests.ts';
import { suggest } from './policy-problems.ts';

/** A JSON Schema, as a server gives it. */
export type SchemaNode = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 16;
const MAX_LISTED = 12;

/** A fault of one test; the path begins within the tests. */
export interface TestFault {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Tests that no value passes which one of the schemas takes. */
export function findTestFaults({
  argument,
  tests,
  found,
}: {
  readonly argument: string;
  readonly tests: ArgumentTests;
  readonly found: readonly SchemaNode[];
}): readonly TestFault[] {
  const asked = [
    ...('equals' in tests ? [[tests.equals, ['equals']] as const] : []),
    ...(tests.in ?? []).map((value, index) => [value, ['in', index]] as const),
  ];
  const values = found.every((schema) => Array.isArray(schema.enum))
    ? found.flatMap((schema) => schema.enum as readonly unknown[])
    : undefined;
  if (values !== undefined) {
    return asked
      .filter(([value]) => !values.includes(value))
      .map(([value, path]) => ({
        path,
        message: `${JSON.stringify(value)} is no value of ${argument}.${suggest(String(value), values.map(String)) || ` It takes ${values.slice(0, MAX_LISTED).map(String).join(', ')}${values.length > MAX_LISTED ? ', …' : ''}.`}`,
      }));
  }
  const types = typesOf(found);
  if (types === undefined) return [];
  const takes = types.map((type) => WORDS[type] ?? type).join(' or ');
  const odd = asked
    .filter(([value]) => !types.some((type) => isOf(value, type)))
    .map(([value, path]) => ({
      path,
      message: `${argument} takes ${takes}, never ${JSON.stringify(value).slice(0, 40)}, so it can never match${typeof value === 'string' ? '; write it without quotes' : types.includes('string') ? '; write it in quotes' : ''}`,
    }));
  const reads = (['min', 'max', 'prefix', 'pattern'] as const).filter(
    (test) => tests[test] !== undefined && !types.some((type) => READ_BY[test].includes(type)),
  );
  return [
    ...odd,
    ...reads.map((test) => ({
      path: [test],
      message: `\`${test}\` reads ${READ_BY[test].includes('string') ? 'a text' : 'a number'}, and ${argument} takes ${takes}; use another test`,
    })),
  ];
}

const WORDS: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  object: 'a map',
  null: 'nothing',
};

const READ_BY: Readonly<Record<'min' | 'max' | 'prefix' | 'pattern', readonly string[]>> = {
  min: ['number', 'integer'],
  max: ['number', 'integer'],
  prefix: ['string'],
  pattern: ['string'],
};

/** Every type that a value may have; undefined where one schema leaves it open. Of a list its items are looked at too, so that it tells nothing. */
function typesOf(found: readonly SchemaNode[]): readonly string[] | undefined {
  const types = found.flatMap((schema) => [schema.type].flat());
  return types.length > 0 && types.every((type) => typeof type === 'string') && !types.includes('array')
    ? [...new Set(types)]
    : undefined;
}

function isOf(value: unknown, type: string): boolean {
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'null') return value === null;
  return type === 'object' ? typeof value === 'object' && value !== null : typeof value === type;
}

/** Every schema that a value at this path may have; an empty one where the schema leaves open what stands there. */
export function schemasAt(
  schema: unknown,
  path: readonly string[],
  { root, depth }: { readonly root: SchemaNode; readonly depth: number },
): readonly SchemaNode[] {
  // A schema that refers to itself has no end.
  if (schema === true || depth > MAX_DEPTH) return [{}];
  if (typeof schema !== 'object' || schema === null) return [];
  const { $ref, type, properties, items, additionalProperties, patternProperties, allOf, anyOf, oneOf } =
    schema as Record<string, unknown>;
  const deeper = (inner: unknown, rest: readonly string[]): readonly SchemaNode[] =>
    schemasAt(inner, rest, { root, depth: depth + 1 });
  const joined = [
    ...[allOf, anyOf, oneOf].flatMap((all) => (Array.isArray(all) ? (all as readonly unknown[]) : [])),
    ...(typeof $ref === 'string' ? [resolve($ref, root)] : []),
  ];
  const branches = joined.flatMap((inner) => deeper(inner, path));
  const [name, ...rest] = path;
  if (name === undefined) return joined.length === 0 ? [schema as SchemaNode] : branches;
  const own = Object.entries((properties ?? {}) as SchemaNode).find(([key]) => key === name)?.[1];
  if (own !== undefined) return [...branches, ...deeper(own, rest)];
  const isOpen =
    patternProperties !== undefined ||
    (typeof additionalProperties === 'object' && additionalProperties !== null) ||
    additionalProperties === true;
  const isFree =
    properties === undefined &&
    items === undefined &&
    joined.length === 0 &&
    [type ?? 'object'].flat().some((one) => one === 'object' || one === 'array');
  return [...branches, ...(items === undefined ? [] : deeper(items, path)), ...(isOpen || isFree ? [{}] : [])];
}

/** `#/$defs/x` only; what lies elsewhere is left open. */
function resolve(ref: string, root: SchemaNode): unknown {
  if (!ref.startsWith('#/')) return true;
  const steps = ref
    .slice(2)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return steps.reduce<unknown>((node, step) => (node as Record<string, unknown> | undefined)?.[step], root) ?? true;
}
