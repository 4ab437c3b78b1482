/** Prepares a schema for the validators: repairs it, removes annotations, and guards patterns that may run too long. */

import { format as interpreterFormats } from '@cfworker/json-schema';
import { canonicalize } from '../schemas/canonical-schema.ts';
import { childrenOf, isJsonObject, type JsonSchema, mapChildren, withoutKeywords } from '../schemas/json-schema.ts';
import { wordSet } from '../text/word-set.ts';
import { guardPattern, isPlain } from './pattern-guard.ts';

/** Formats that are checked, each in linear time. Every other format is only an annotation. */
const FORMATS = wordSet(`
  date time date-time duration uri uri-reference email hostname ipv4 ipv6 uuid json-pointer regex
`);
const ANNOTATIONS = ['description', 'default'];

/** A schema ready for both validators. */
export interface PreparedSchema {
  readonly schema: JsonSchema;
  /** Formats that the schema uses, including guarded patterns. */
  readonly formats: ReadonlyMap<string, (text: string) => boolean>;
  /** Guarded format → its pattern, for messages. */
  readonly patterns: ReadonlyMap<string, string>;
  /** What is not checked, in words. */
  readonly dropped: readonly string[];
  /** Number of subschemas. A schema with many is not compiled. */
  readonly nodes: number;
  /** False if the two validators could differ. Then only the interpreter is used. */
  readonly compilable: boolean;
  /** True if the items of some list must be unique. */
  readonly unique: boolean;
}

/** Returns the prepared schema, or why values cannot be checked against it. */
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
  const test = FORMATS.has(name) ? interpreterFormats[name] : undefined;
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
    work.dropped.push('a pattern that is not a regular expression');
    return rest;
  }
  work.formats.set(guarded.format, guarded.test);
  work.patterns.set(guarded.format, pattern);
  // The interpreter reads formats from its own table. The name contains a hash of the pattern, so no entry is replaced
  // by a different one.
  interpreterFormats[guarded.format] = guarded.test;
  return { ...rest, allOf: [...(Array.isArray(rest.allOf) ? rest.allOf : []), { format: guarded.format }] };
}

function guardMaps(node: JsonSchema, work: Work): JsonSchema {
  const map = node.patternProperties;
  if (!isJsonObject(map) || Object.keys(map).every(isPlain)) return node;
  work.dropped.push('patterns for names');
  return withoutKeywords(node, ['patternProperties', 'additionalProperties', 'unevaluatedProperties']);
}

function measure(root: JsonSchema): Pick<PreparedSchema, 'nodes' | 'compilable' | 'unique'> {
  let nodes = 0;
  let compilable = true;
  let unique = false;
  const stack = [root];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    nodes += 1;
    // Ajv computes `multipleOf` in binary, the interpreter in decimal. Unevaluated keywords differ in rare cases.
    if (typeof node.multipleOf === 'number' && !Number.isInteger(node.multipleOf)) compilable = false;
    if (node.unevaluatedProperties !== undefined || node.unevaluatedItems !== undefined) compilable = false;
    unique ||= node.uniqueItems === true;
    stack.push(...childrenOf(node));
  }
  return { nodes, compilable, unique };
}
