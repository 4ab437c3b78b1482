/** Owns what becomes of conditional keywords: `if`, `not` and `dependent…` leave the schema and stay as words (transform 11). */
import { below, type Log } from './log.ts';
import { entriesOf, isNever, isObject, own, type Schema, schemasOf, strings, valuesOf, without } from './schema.ts';
import { conditionWords, either } from './words.ts';

const KEYWORDS = ['if', 'then', 'else', 'not', 'dependentRequired', 'dependentSchemas'];
const VAGUE = 'some combinations are refused; the error says which';

/** What a conditional keyword leaves behind: names that it brings, words for them, words for the node. */
interface Findings {
  readonly names: Map<string, Schema>;
  readonly needs: (readonly [string, string])[];
  readonly words: string[];
}

/** The node without conditional keywords; `{ not: {} }` stays, it means "nothing". */
export function dropConditions(node: Schema, path: string, log: Log): Schema {
  if (isNever(node) || !KEYWORDS.some((keyword) => node[keyword] !== undefined)) return node;
  log.push({ transform: 'conditions', effect: 'widen', path: below(path) });
  const found: Findings = { names: new Map(), needs: [], words: [] };
  readIf(node, found);
  readDependents(node, found);
  if (isObject(node.not)) found.words.push(refusedWords(node.not));
  const rest = without(node, KEYWORDS);
  const declared = new Map(entriesOf(rest.properties));
  for (const [name, child] of found.names) if (!declared.has(name)) declared.set(name, child);
  return {
    ...rest,
    ...(declared.size > 0 ? { properties: Object.fromEntries(declared) } : {}),
    words: [...strings(rest.words), ...new Set(found.words)],
    needs: [...(Array.isArray(rest.needs) ? rest.needs : []), ...found.needs],
  };
}

function readIf(node: Schema, found: Findings): void {
  if (node.if === undefined) return;
  const when = conditionWords(node.if);
  if (when === undefined) found.words.push(VAGUE);
  for (const [keyword, word] of [
    ['then', 'when'],
    ['else', 'unless'],
  ] as const)
    readBranch(node[keyword], when === undefined ? undefined : `${word} ${when}`, found);
}

/** A schema that holds under a condition: its names become optional, what it requires becomes a need. */
function readBranch(branch: unknown, when: string | undefined, found: Findings): void {
  if (!isObject(branch)) return;
  for (const [name, child] of entriesOf(branch.properties)) if (!found.names.has(name)) found.names.set(name, child);
  for (const name of strings(branch.required)) if (when !== undefined) found.needs.push([name, `needed ${when}`]);
  for (const nested of [...schemasOf(branch.anyOf), ...schemasOf(branch.oneOf)]) readBranch(nested, undefined, found);
}

function readDependents(node: Schema, found: Findings): void {
  for (const [name, needed] of Object.entries(isObject(node.dependentRequired) ? node.dependentRequired : {})) {
    for (const other of strings(needed)) found.needs.push([other, `needed when ${name} is given`]);
  }
  for (const [name, branch] of entriesOf(node.dependentSchemas)) readBranch(branch, `when ${name} is given`, found);
}

function refusedWords(not: Schema): string {
  const names = strings(not.required);
  if (names.length > 0 && own(not, 'properties') === undefined) return `not ${names.join(' together with ')}`;
  const values = valuesOf(not);
  if (values !== undefined) return `not ${either(values.map((value) => JSON.stringify(value)))}`;
  return 'some values are refused; the error says which';
}
