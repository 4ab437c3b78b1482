/** Owns the form of a schema that the validators get: repaired, without annotations, its dangerous patterns behind a guard. */
import { format as interpreterFormats } from '@cfworker/json-schema';
import { canonicalize } from '../schemas/canonical-schema.ts';
import { childrenOf, isJsonObject, type JsonSchema, mapChildren, withoutKeywords } from '../schemas/json-schema.ts';
import { guardPattern, isPlain } from './pattern-guard.ts';

/** Formats that are checked; every other format is an annotation. Each is linear in the length of the text. */
const FORMATS = [
  'date',
  'time',
  'date-time',
  'duration',
  'uri',
  'uri-reference',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uuid',
  'json-pointer',
  'regex',
];
const ANNOTATIONS = ['description', 'default'];

/** A schema ready for both validators. */
export interface PreparedSchema {
  readonly schema: JsonSchema;
  /** Formats that the schema uses, guarded patterns among them. */
  readonly formats: ReadonlyMap<string, (text: string) => boolean>;
  /** Guarded format → its pattern, for messages. */
  readonly patterns: ReadonlyMap<string, string>;
  /** Rules that are not checked, in words. */
  readonly dropped: readonly string[];
  /** Subschemas; big ones are not compiled. */
  readonly nodes: number;
  /** False when the two validators could differ, so that only the interpreter judges. */
  readonly compilable: boolean;
  /** True when items of some list must differ. */
  readonly unique: boolean;
}

/** Prepares a schema, or says why nothing can be checked by it. */
export function prepareSchema(
  input: unknown,
  as: 'input' | 'output',
): PreparedSchema | { readonly quarantined: string } {
  const canonical = canonicalize(input, as);
  if ('quarantined' in canonical) return canonical;
  const work = {
    formats: new Map<string, (text: string) => boolean>(),
    patterns: new Map<string, string>(),
    dropped: [] as string[],
  };
  const schema = strip(canonical.schema, work);
  return { schema, ...work, ...measure(schema) };
}

interface Work {
  readonly formats: Map<string, (text: string) => boolean>;
  readonly patterns: Map<string, string>;
  readonly dropped: string[];
}

function strip(node: JsonSchema, work: Work): JsonSchema {
  const bare = mapChildren(withoutKeywords(node, ANNOTATIONS), (child) => strip(child, work));
  const checked = guardMaps(guardText(bare, work), work);
  const name = checked.format;
  if (typeof name !== 'string' || work.formats.has(name)) return checked;
  const test = FORMATS.includes(name) ? interpreterFormats[name] : undefined;
  if (test === undefined) return withoutKeywords(checked, ['format']);
  work.formats.set(name, test);
  return checked;
}

function guardText(node: JsonSchema, work: Work): JsonSchema {
  const pattern = node.pattern;
  if (typeof pattern !== 'string' || isPlain(pattern)) return node;
  const rest = withoutKeywords(node, ['pattern']);
  const guarded = guardPattern(pattern);
  if (guarded === undefined) {
    work.dropped.push('a pattern that is no regular expression');
    return rest;
  }
  work.formats.set(guarded.format, guarded.test);
  work.patterns.set(guarded.format, pattern);
  // The interpreter knows formats by a table of its own; the name holds a hash of the pattern, so entries never differ.
  interpreterFormats[guarded.format] = guarded.test;
  return { ...rest, allOf: [...(Array.isArray(rest.allOf) ? rest.allOf : []), { format: guarded.format }] };
}

function guardMaps(node: JsonSchema, work: Work): JsonSchema {
  const map = node.patternProperties;
  if (!isJsonObject(map) || Object.keys(map).every(isPlain)) return node;
  work.dropped.push('patterns of names');
  return withoutKeywords(node, ['patternProperties', 'additionalProperties', 'unevaluatedProperties']);
}

function measure(root: JsonSchema): Pick<PreparedSchema, 'nodes' | 'compilable' | 'unique'> {
  let nodes = 0;
  let compilable = true;
  let unique = false;
  const stack = [root];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    nodes += 1;
    // Ajv divides in binary, the interpreter in decimal; unevaluated keywords differ in corners.
    if (typeof node.multipleOf === 'number' && !Number.isInteger(node.multipleOf)) compilable = false;
    if (node.unevaluatedProperties !== undefined || node.unevaluatedItems !== undefined) compilable = false;
    unique ||= node.uniqueItems === true;
    stack.push(...childrenOf(node));
  }
  return { nodes, compilable, unique };
}
