/** Removes conditional keywords (`if`, `not` and `dependent…`) from the schema and describes them in words. */

import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  stringsOf,
  valuesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { pathBelow, type TransformLog } from '../schemas/transform-log.ts';
import { conditionWords, orList } from './constraint-words.ts';

const KEYWORDS = ['if', 'then', 'else', 'not', 'dependentRequired', 'dependentSchemas'];
const VAGUE = 'some combinations are refused; the error says which';

/** What a conditional keyword leaves: names that it adds, words for them, words for the node. */
interface Findings {
  readonly names: Map<string, JsonSchema>;
  readonly needs: (readonly [string, string])[];
  readonly words: string[];
}

/** Returns the node without conditional keywords. `{ not: {} }` stays, because it accepts no value. */
export function dropConditions(node: JsonSchema, path: string, log: TransformLog): JsonSchema {
  if (isNever(node) || !KEYWORDS.some((keyword) => node[keyword] !== undefined)) return node;
  log.push({ transform: 'conditions', effect: 'widen', path: pathBelow(path) });
  const found: Findings = { names: new Map(), needs: [], words: [] };
  readIf(node, found);
  readDependents(node, found);
  if (isJsonObject(node.not)) found.words.push(refusedWords(node.not));
  const rest = withoutKeywords(node, KEYWORDS);
  const declared = new Map(schemaEntries(rest.properties));
  for (const [name, child] of found.names) if (!declared.has(name)) declared.set(name, child);
  return {
    ...rest,
    ...(declared.size > 0 ? { properties: Object.fromEntries(declared) } : {}),
    words: [...stringsOf(rest.words), ...new Set(found.words)],
    needs: [...(Array.isArray(rest.needs) ? rest.needs : []), ...found.needs],
  };
}

function readIf(node: JsonSchema, found: Findings): void {
  if (node.if === undefined) return;
  const when = conditionWords(node.if);
  if (when === undefined) found.words.push(VAGUE);
  for (const [keyword, word] of [
    ['then', 'when'],
    ['else', 'unless'],
  ] as const)
    readBranch(node[keyword], when === undefined ? undefined : `${word} ${when}`, found);
}

/** Reads a schema under a condition: its names become optional, and its required names become words. */
function readBranch(branch: unknown, when: string | undefined, found: Findings): void {
  if (!isJsonObject(branch)) return;
  for (const [name, child] of schemaEntries(branch.properties))
    if (!found.names.has(name)) found.names.set(name, child);
  for (const name of stringsOf(branch.required)) if (when !== undefined) found.needs.push([name, `needed ${when}`]);
  for (const nested of [...schemasOf(branch.anyOf), ...schemasOf(branch.oneOf)]) readBranch(nested, undefined, found);
}

function readDependents(node: JsonSchema, found: Findings): void {
  for (const [name, needed] of Object.entries(isJsonObject(node.dependentRequired) ? node.dependentRequired : {})) {
    for (const other of stringsOf(needed)) found.needs.push([other, `needed when ${name} is given`]);
  }
  for (const [name, branch] of schemaEntries(node.dependentSchemas)) readBranch(branch, `when ${name} is given`, found);
}

function refusedWords(not: JsonSchema): string {
  const names = stringsOf(not.required);
  if (names.length > 0 && ownValue(not, 'properties') === undefined) return `not ${names.join(' together with ')}`;
  const values = valuesOf(not);
  if (values !== undefined) return `not ${orList(values.map((value) => JSON.stringify(value)))}`;
  return 'some values are refused; the error says which';
}
