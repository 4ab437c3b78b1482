/**
 * Joins branches to one union without duplicates. Each scalar type has one branch; a branch for any value replaces
 * all.
 */
import { type JsonSchema, sameJson, stringsOf, typesOf } from '../schemas/json-schema.ts';
import { constraintWords, orList } from './constraint-words.ts';

const SCALARS = ['string', 'number', 'integer', 'boolean'];

/** Returns a union of simplified branches, with the keywords around it. A single branch makes no union. */
export function joinBranches(list: readonly JsonSchema[], around: JsonSchema): JsonSchema {
  const branches = mergeScalars(
    list.filter((branch, index) => list.findIndex((other) => sameJson(branch, other)) === index),
  );
  const any = branches.find((branch) => typesOf(branch).length === 0);
  if (any !== undefined) return { ...any, ...around };
  const [only] = branches;
  if (branches.length > 1 || only === undefined) return { ...around, anyOf: branches };
  const description = around.description ?? only.description;
  const words = [...stringsOf(around.words), ...stringsOf(only.words)];
  return {
    ...only,
    ...around,
    ...(description === undefined ? {} : { description }),
    ...(words.length > 0 ? { words } : {}),
  };
}

/** Merges branches of one scalar type: joins their values, and describes their rules in words. */
function mergeScalars(branches: readonly JsonSchema[]): readonly JsonSchema[] {
  const kept: JsonSchema[] = [];
  for (const branch of branches) {
    const [type] = typesOf(branch);
    const at = kept.findIndex((other) => type !== undefined && SCALARS.includes(type) && typesOf(other)[0] === type);
    const twin = kept[at];
    if (twin === undefined) kept.push(branch);
    else kept[at] = mergeTwins(twin, branch);
  }
  return kept;
}

function mergeTwins(left: JsonSchema, right: JsonSchema): JsonSchema {
  const description = [
    ...new Set([left.description, right.description].filter((text) => typeof text === 'string')),
  ].join('; ');
  const named: JsonSchema = { type: left.type, ...(description === '' ? {} : { description }) };
  if (Array.isArray(left.enum) && Array.isArray(right.enum))
    return { ...named, enum: [...new Set([...left.enum, ...right.enum])] };
  const rules = [left, right].map((node) =>
    Array.isArray(node.enum)
      ? node.enum.map((value) => JSON.stringify(value)).join(', ')
      : [...stringsOf(node.words), ...constraintWords(node)].join(', '),
  );
  return rules.includes('') ? named : { ...named, words: [orList(rules)] };
}
