/** Checks the argument tests of a rule against the JSON Schemas of tools: finds tests that no value can pass. */
import type { ArgumentTests } from './argument-tests.ts';
import { suggest } from './policy-problems.ts';

/** A JSON Schema, as a server sends it. */
export type SchemaNode = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 16;
const MAX_LISTED = 12;

/** A fault of one test. `path` begins within the tests. */
interface TestFault {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Returns the tests that no value of the argument can pass, judged by the schemas that were found for the argument. */
export function findTestFaults(
  argument: string,
  tests: ArgumentTests,
  found: readonly SchemaNode[],
): readonly TestFault[] {
  const expected = [
    ...('equals' in tests ? [[tests.equals, ['equals']] as const] : []),
    ...(tests.in ?? []).map((value, index) => [value, ['in', index]] as const),
  ];
  const values = found.every((schema) => Array.isArray(schema.enum))
    ? found.flatMap((schema) => schema.enum as readonly unknown[])
    : undefined;
  if (values !== undefined) {
    const shown = values.slice(0, MAX_LISTED).map(String).join(', ');
    const listed = ` Its values are ${shown}${values.length > MAX_LISTED ? ', …' : ''}.`;
    const names = values.map(String);
    return expected
      .filter(([value]) => !values.includes(value))
      .map(([value, path]) => ({
        path,
        message: `${JSON.stringify(value)} is not a value of ${argument}.${suggest(String(value), names) || listed}`,
      }));
  }
  const types = typesOf(found);
  if (types === undefined) return [];
  const accepted = types.map((type) => TYPE_WORDS[type] ?? type).join(' or ');
  const quotesHint = (value: unknown): string => {
    if (typeof value === 'string') return '; write it without quotes';
    return types.includes('string') ? '; write it in quotes' : '';
  };
  return [
    ...expected
      .filter(([value]) => !types.some((type) => isOf(value, type)))
      .map(([value, path]) => ({
        path,
        message:
          `${argument} is ${accepted}, never ${JSON.stringify(value).slice(0, 40)}, so it can never ` +
          `match${quotesHint(value)}`,
      })),
    ...(['min', 'max', 'prefix', 'pattern'] as const)
      .filter((test) => tests[test] !== undefined && !types.some((type) => TESTED_TYPES[test].includes(type)))
      .map((test) => ({
        path: [test],
        message:
          `\`${test}\` tests ${TESTED_TYPES[test].includes('string') ? 'a string' : 'a number'}, and ` +
          `${argument} is ${accepted}; use another test`,
      })),
  ];
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  object: 'a map',
  null: 'null',
};

const TESTED_TYPES: Readonly<Record<'min' | 'max' | 'prefix' | 'pattern', readonly string[]>> = {
  min: ['number', 'integer'],
  max: ['number', 'integer'],
  prefix: ['string'],
  pattern: ['string'],
};

/**
 * Returns every type that a value may have. Undefined if a schema allows any type, or a list: its items are tested too.
 */
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

/** Returns every schema that a value at this path may have. An empty schema means that any value may be there. */
export function schemasAt(
  schema: unknown,
  path: readonly string[],
  { root, depth }: { readonly root: SchemaNode; readonly depth: number },
): readonly SchemaNode[] {
  // A schema that refers to itself never ends.
  if (schema === true || depth > MAX_DEPTH) return [{}];
  if (typeof schema !== 'object' || schema === null) return [];
  const { $ref, properties, items, allOf, anyOf, oneOf } = schema as Record<string, unknown>;
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
  return [
    ...branches,
    ...(items === undefined ? [] : deeper(items, path)),
    ...(allowsUnknownKeys(schema as SchemaNode) || (joined.length === 0 && leavesContentOpen(schema as SchemaNode))
      ? [{}]
      : []),
  ];
}

function allowsUnknownKeys({ patternProperties, additionalProperties }: SchemaNode): boolean {
  return (
    patternProperties !== undefined ||
    additionalProperties === true ||
    (typeof additionalProperties === 'object' && additionalProperties !== null)
  );
}

function leavesContentOpen({ type, properties, items }: SchemaNode): boolean {
  const types = [type ?? 'object'].flat();
  return properties === undefined && items === undefined && (types.includes('object') || types.includes('array'));
}

/** Follows `#/…` references only. Any value may match a reference to another document. */
function resolve(ref: string, root: SchemaNode): unknown {
  if (!ref.startsWith('#/')) return true;
  const steps = ref
    .slice(2)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return steps.reduce<unknown>((node, step) => (node as Record<string, unknown> | undefined)?.[step], root) ?? true;
}
