/** Shows a JSON Schema to a person: one row for each argument, with its type in words and its description. */
import { isObject, type JsonObject } from '../../../adapters/rpc/wire-message.ts';
import { MAX_COLUMNS, printable, wrapWords } from '../print.ts';

/** Levels of objects and lists that are shown. `--json` shows all. */
const MAX_DEPTH = 3;
/** Rows that are shown. */
const MAX_ROWS = 100;
/** The most columns of a name before its description begins. */
const NAME_COLUMNS = 28;
/** Values of an enumeration, or types, that are shown. */
const MAX_CHOICES = 12;
/** The most letters of one value in words. */
const MAX_VALUE = 40;

interface PropertyRow {
  readonly name: string;
  readonly words: string;
}

/** Returns the rows of an object schema as lines of text; one line that says so if it has no properties. */
export function schemaText(schema: unknown): readonly string[] {
  const shown: PropertyRow[] = [];
  // Rows are made one by one, because references can make a short schema very large.
  for (const row of propertyRows(schema, { root: schema, prefix: '', depth: 1 })) {
    if (shown.push(row) > MAX_ROWS) break;
  }
  const width = Math.min(NAME_COLUMNS, Math.max(0, ...shown.map(({ name }) => name.length)));
  const lines = shown
    .slice(0, MAX_ROWS)
    .map(({ name, words }) =>
      wrapWords(`  ${printable(name).padEnd(width)}  ${printable(words)}`, MAX_COLUMNS, ' '.repeat(width + 4)),
    );
  if (lines.length === 0) return ['  none'];
  return shown.length > MAX_ROWS ? [...lines, '  and more, see --json'] : lines;
}

interface SchemaPlace {
  /** The whole schema, in which references are resolved. */
  readonly root: unknown;
  readonly prefix: string;
  readonly depth: number;
}

function* propertyRows(schema: unknown, { root, prefix, depth }: SchemaPlace): Generator<PropertyRow> {
  const node = resolved(schema, root);
  const required = Array.isArray(node.required) ? node.required : [];
  for (const [key, property] of isObject(node.properties) ? Object.entries(node.properties) : []) {
    const own = resolved(property, root);
    const name = `${prefix}${key}`;
    const isRequired = required.includes(key) ? ', required' : '';
    const fallback = own.default === undefined ? '' : `, default ${valueWords(own.default)}`;
    const about = typeof own.description === 'string' ? `: ${own.description.trim().replaceAll(/\s+/g, ' ')}` : '';
    yield { name, words: `${typeWords(own, root)}${isRequired}${fallback}${about}` };
    const inner = own.items === undefined ? { of: own, mark: '.' } : { of: own.items, mark: '[].' };
    if (depth < MAX_DEPTH) yield* propertyRows(inner.of, { root, prefix: `${name}${inner.mark}`, depth: depth + 1 });
  }
}

/** Follows a local reference once; a reference to a reference is not shown. */
function resolved(schema: unknown, root: unknown): JsonObject {
  const node = isObject(schema) ? schema : {};
  const { $ref, ...own } = node;
  if (typeof $ref !== 'string' || !$ref.startsWith('#/')) return node;
  let found: unknown = root;
  for (const key of $ref.slice(2).split('/'))
    found = isObject(found) && Object.hasOwn(found, key) ? found[key] : undefined;
  return { ...(isObject(found) ? found : {}), ...own };
}

/** `depth`: how far it goes into lists and choices, because a schema can contain itself. */
function typeWords(node: JsonObject, root: unknown, depth = MAX_DEPTH): string {
  if ('const' in node) return `exactly ${valueWords(node.const)}`;
  if (Array.isArray(node.enum)) return `one of ${fewOf(node.enum.map(valueWords), ', ')}`;
  if (depth === 0) return 'more';
  const choices = [node.anyOf, node.oneOf].find(Array.isArray)?.slice(0, MAX_CHOICES + 1);
  if (node.type === undefined && choices !== undefined)
    return fewOf([...new Set(choices.map((one) => typeWords(resolved(one, root), root, depth - 1)))], ' or ');
  const types = [node.type].flat().filter((type) => typeof type === 'string');
  const words = types.map((type) =>
    type === 'array' && node.items !== undefined
      ? `list of ${typeWords(resolved(node.items, root), root, depth - 1)}`
      : type,
  );
  return `${words.length === 0 ? 'any value' : words.join(' or ')}${limitWords(node)}`;
}

function fewOf(words: readonly string[], between: string): string {
  return words.slice(0, MAX_CHOICES).join(between) + (words.length > MAX_CHOICES ? `${between}…` : '');
}

function limitWords(node: JsonObject): string {
  const range = (least: unknown, most: unknown, unit: string): readonly string[] => {
    if (least === undefined && most === undefined) return [];
    if (most === undefined) return [`at least ${String(least)}${unit}`];
    return [least === undefined ? `at most ${String(most)}${unit}` : `${String(least)} to ${String(most)}${unit}`];
  };
  const parts = [
    ...range(node.minimum, node.maximum, ''),
    ...range(node.minLength, node.maxLength, ' characters'),
    ...range(node.minItems, node.maxItems, ' items'),
    ...(typeof node.format === 'string' ? [`format ${node.format}`] : []),
    ...(typeof node.pattern === 'string' ? [`pattern ${valueWords(node.pattern)}`] : []),
  ];
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}

function valueWords(value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE - 1)}…` : text;
}
