/**
 * Describes the faults of a value: the place, what was expected, and the allowed names and values. A message contains
 * at most 40 characters of an argument.
 */
import type { OutputUnit } from '@cfworker/json-schema';
import { briefJson, constraintWords, cutWord, orList } from '../projection/constraint-words.ts';
import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  valuesOf,
} from '../schemas/json-schema.ts';
import { referenceTarget } from '../schemas/reference-graph.ts';
import { editDistance } from '../text/edit-distance.ts';
import { nodeAt, positionOf, type ValuePosition, valueAt } from './value-position.ts';

/** One fault. `path` is the place for people, such as `items[0].name`; `at` is the same place for programs. */
export interface Fault {
  readonly path: string;
  readonly message: string;
  readonly at: ValuePosition;
}

/** The schema and the value that messages are about. `patterns` maps guarded formats to their patterns. */
export interface FaultContext {
  readonly root: JsonSchema;
  readonly value: unknown;
  readonly patterns: ReadonlyMap<string, string>;
}

/** Returns the faults of one entry of the interpreter's report; several for a keyword that is about several names. */
export function faultOf(unit: OutputUnit, context: FaultContext): readonly Fault[] {
  const node = nodeAt(context.root, unit.keywordLocation) ?? {};
  const at = positionOf(context.value, unit.instanceLocation);
  const value = valueAt(context.value, at);
  switch (unit.keyword) {
    case 'type':
      return [faultAt(at, `expected ${orList(typesOf(node))}, got ${describeValue(value)}`)];
    case 'enum':
    case 'const':
      return [faultAt(at, valueMessage(valuesOf(node) ?? [], value))];
    case 'required':
      return missingNames(node, value).map((name) =>
        faultAt([...at, name], `is required${misnamedHint(name, node, value)}`),
      );
    case 'dependentRequired':
      return dependents(node, value, at);
    case 'not':
      return [isNever(node) ? unknownName(unit, at, context) : faultAt(at, 'is not allowed here')];
    case 'format':
      return [faultAt(at, formatMessage(String(node.format), value, context))];
    case 'propertyNames':
      return [
        faultAt(at, `contains a name that is not allowed${suffix(constraintWords({ ...node, type: 'object' }))}`),
      ];
    case 'contains':
      return [faultAt(at, 'contains none of the required items')];
    default:
      return [faultAt(at, ruleMessage(unit.keyword, node, value))];
  }
}

/** Returns a fault at a position. */
export function faultAt(at: ValuePosition, message: string): Fault {
  return { path: pathText(at), message, at };
}

function pathText(at: ValuePosition): string {
  const text = at
    .map((key, index) => (typeof key === 'number' ? `[${key}]` : `${index === 0 ? '' : '.'}${plainName(key)}`))
    .join('');
  return text === '' ? 'arguments' : text;
}

function plainName(name: string): string {
  return cutWord(name.replace(/[^ -~]/gu, '?'), 60);
}

/** Describes a value in one word and at most 40 characters of it. */
export function describeValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (isJsonObject(value)) return 'an object';
  if (typeof value !== 'string') return `${value === null ? '' : `${typeof value} `}${String(value)}`;
  const shown = JSON.stringify(cutWord(value, 30));
  return `string ${shown.length > 40 ? `of ${value.length} characters` : shown}`;
}

function suffix(words: readonly string[]): string {
  return words.length === 0 ? '' : `: ${words.join(', ')}`;
}

function ruleMessage(keyword: string, node: JsonSchema, value: unknown): string {
  if (keyword === 'uniqueItems') return 'must not contain the same item twice';
  // Only the words of this keyword: a node may have an exclusive and a plain bound, and each is reported by itself.
  const words = constraintWords(node[keyword] === undefined ? {} : { [keyword]: node[keyword] });
  return words.length === 0 ? 'does not fit' : `expected ${words.join(', ')}, got ${describeValue(value)}`;
}

function formatMessage(format: string, value: unknown, context: FaultContext): string {
  const pattern = context.patterns.get(format);
  return (
    `expected ${pattern === undefined ? `format ${format}` : `pattern ${cutWord(pattern, 120)}`}, got ` +
    `${describeValue(value)}`
  );
}

function valueMessage(values: readonly unknown[], value: unknown): string {
  const near = typeof value === 'string' ? nearestName(value, stringsOf(values)) : undefined;
  const shown = values
    .slice(0, 25)
    .map((item) => briefJson(item))
    .join(', ');
  return (
    'expected ' +
    `${values.length === 1 ? '' : 'one of '}${cutWord(shown, 300)}${values.length > 25 ? ', …' : ''}, ` +
    `got ${describeValue(value)}${near === undefined ? '' : `; did you mean ${briefJson(near)}?`}`
  );
}

function dependents(node: JsonSchema, value: unknown, at: ValuePosition): readonly Fault[] {
  const needs = Object.entries(isJsonObject(node.dependentRequired) ? node.dependentRequired : {});
  return needs
    .filter(([name]) => ownValue(value, name) !== undefined)
    .flatMap(([name, others]) =>
      stringsOf(others)
        .filter((other) => ownValue(value, other) === undefined)
        .map((other) => faultAt([...at, other], `is required when ${name} is given`)),
    );
}

function missingNames(node: JsonSchema, value: unknown): readonly string[] {
  return stringsOf(node.required).filter((name) => ownValue(value, name) === undefined);
}

/**
 * Returns what to add to the fault of a missing name: the given name that was probably meant, or the given names that
 * the schema does not declare. Empty if there are none. Unknown names may be legal, so they are no fault of their own.
 */
export function misnamedHint(name: string, node: JsonSchema, value: unknown): string {
  if (!isJsonObject(value) || node.properties === undefined || node.patternProperties !== undefined) return '';
  const { additionalProperties: rest } = node;
  if (isJsonObject(rest) && !isNever(rest) && Object.keys(rest).length > 0) return '';
  const unknown = Object.keys(value).filter((given) => ownValue(node.properties, given) === undefined);
  const [only, ...others] = unknown;
  if (only === undefined) return '';
  const isLast = others.length === 0 && missingNames(node, value).every((one) => one === name);
  const meant = nearestName(name, unknown) ?? (isLast ? only : undefined);
  if (meant !== undefined) return `. ${plainName(meant)} is not an argument here; did you mean ${name}?`;
  return `. Not arguments here: ${cutWord(unknown.map(plainName).join(', '), 200)}`;
}

function unknownName(unit: OutputUnit, at: ValuePosition, context: FaultContext): Fault {
  const isName = /\/(?:additional|unevaluated)Properties\/not$/.test(unit.keywordLocation);
  const parent = nodeAt(context.root, unit.keywordLocation.replace(/\/not$/, ''));
  if (!isName || parent === undefined) return faultAt(at, 'is not allowed here');
  const legal = schemaEntries(parent.properties)
    .filter(([, node]) => !isNever(node))
    .map(([name]) => name);
  const near = nearestName(String(at.at(-1)), legal);
  const hint = near === undefined ? '.' : `; did you mean ${near}?`;
  const allowed = legal.length === 0 ? 'none' : cutWord(legal.join(', '), 300);
  return faultAt(at, `is not an argument here${hint} Allowed: ${allowed}`);
}

/** Returns the candidate that is most like `word`; undefined if none is like it. Case and signs do not count. */
export function nearestName(word: string, candidates: readonly string[]): string | undefined {
  const fold = (text: string): string =>
    text
      .slice(0, 60)
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '');
  const wanted = fold(word);
  let best: string | undefined;
  let bestDistance = Math.min(4, Math.max(1, Math.floor(wanted.length / 2))) + 1;
  for (const candidate of candidates.slice(0, 200)) {
    const distance = editDistance(wanted, fold(candidate));
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Returns the types that a union accepts, in words. */
export function unionTypes(root: JsonSchema, union: JsonSchema): string {
  const branches = [...schemasOf(union.anyOf), ...schemasOf(union.oneOf)].map(
    (branch) => referenceTarget(root, branch.$ref) ?? branch,
  );
  return orList([
    ...new Set(
      branches.flatMap((branch) =>
        typesOf(branch).length > 0
          ? typesOf(branch)
          : (valuesOf(branch) ?? ['another value']).map((item) => (item === 'another value' ? item : briefJson(item))),
      ),
    ),
  ]);
}

/**
 * Returns the faults as lines, together at most `max` characters. The last line counts the faults that are left out.
 */
export function formatFaults(faults: readonly Fault[], max = 1000): string {
  const lines: string[] = [];
  let length = 0;
  for (const { path, message } of faults) {
    const line = cutWord(`${path}: ${message}`, 460);
    if (length + line.length > max - 30) return [...lines, `… and ${faults.length - lines.length} more`].join('\n');
    lines.push(line);
    length += line.length + 1;
  }
  return lines.join('\n');
}
