/** Adds keys and items to the text of tollgate.yaml without changing any other byte. Refuses unusual forms of YAML. */
import { isDeepStrictEqual } from 'node:util';
import {
  Document,
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  visit,
  type YAMLMap,
  type YAMLSeq,
} from 'yaml';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/**
 * One addition: a key with its value to the map at `path`, or items to the list at `path`. Missing parents are made. A
 * number as text names an existing item of a list.
 */
export type Addition =
  | { readonly path: readonly string[]; readonly key: string; readonly value: unknown }
  | { readonly path: readonly string[]; readonly items: readonly string[] };

type Plain = Record<string, unknown>;

/** Returns the text with the additions, in order. Existing keys and items stay. Throws USAGE for an unusual form. */
export function addTo(text: string, additions: readonly Addition[]): string {
  return additions.reduce(addOne, text);
}

function addOne(text: string, addition: Addition): string {
  const target = valueOf(text) as Plain | undefined;
  const hasChanged = target === undefined ? undefined : addToValue(target, addition);
  if (hasChanged === false) return text;
  const changed = hasChanged === undefined ? undefined : insert(text, addition, text.includes('\r\n') ? '\r\n' : '\n');
  if (changed !== undefined && isDeepStrictEqual(valueOf(changed), target)) return changed;
  throw new TollgateError('USAGE', {
    detail: `The section ${addition.path[0] ?? ''} of tollgate.yaml is written in a form that Tollgate cannot change.`,
    next: 'Nothing was written. Write the section as a plain block, or make the change by hand.',
  });
}

/** Parses the text into new values, an empty text into an empty map; undefined if it has errors. */
export function valueOf(text: string): unknown {
  const document = parseDocument(text);
  return document.errors.length > 0 ? undefined : (document.toJS() ?? {});
}

/**
 * Makes the addition in plain values. Returns false if nothing is missing, undefined if another value is in the way.
 */
function addToValue(root: Plain, addition: Addition): boolean | undefined {
  let place: Plain = root;
  const last = addition.path.length - 1;
  for (const [index, name] of addition.path.entries()) {
    const isList = 'items' in addition && index === last;
    const existing = Object.hasOwn(place, name) ? place[name] : undefined;
    const isListed = Array.isArray(existing) && Object.hasOwn(existing, addition.path[index + 1] ?? '');
    if (
      typeof existing !== 'object'
        ? existing !== undefined
        : existing !== null && Array.isArray(existing) !== isList && !isListed
    )
      return undefined;
    if (isList) {
      const list = Array.isArray(existing) ? (existing as unknown[]) : [];
      const missing = addition.items.filter((item) => !list.includes(item));
      place[name] = [...list, ...missing];
      return missing.length > 0;
    }
    if (existing == null) place[name] = {};
    place = place[name] as Plain;
  }
  if (!('key' in addition) || Object.hasOwn(place, addition.key)) return false;
  place[addition.key] = addition.value;
  return true;
}

/** Inserts the addition into the text, at the deepest existing node. Returns undefined if it cannot. */
function insert(text: string, addition: Addition, eol: string): string | undefined {
  const document = parseDocument(text);
  let node: unknown = document.contents;
  let depth = 0;
  let pair: Pair<Node, Node | null> | undefined;
  while (depth < addition.path.length && (isMap(node) || isSeq(node))) {
    const name = addition.path[depth];
    if (isSeq(node)) {
      [pair, node] = [undefined, node.items[Number(name)]];
      depth += 1;
      continue;
    }
    const found = (node as YAMLMap<Node, Node | null>).items.find(({ key }) => isScalar(key) && key.value === name);
    if (found === undefined) break;
    [pair, node] = [found, found.value];
    depth += 1;
  }
  const value = valueAt(addition, depth, node);
  if (isAlias(node)) return undefined;
  const isRoot = depth === 0 && (node as YAMLMap | null)?.flow !== true;
  if (!isRoot && isCollection(node) && node.items.length > 0)
    return (node as YAMLMap).flow === true ? intoFlow(text, node, value) : intoBlock({ text, node, value, eol });
  if (pair !== undefined) return intoEmpty({ text, pair, value, eol });
  const body = render(value, '', eol);
  const gap = text === '' || text.endsWith('\n') ? '' : eol;
  return `${text}${gap}${eol}${body}`;
}

/** Returns what must still be written below the found node: a map, or the items that a list lacks. */
function valueAt(addition: Addition, depth: number, node: unknown): Plain | readonly string[] {
  const rest = addition.path.slice(depth);
  if ('items' in addition && rest.length === 0) {
    const existing = isSeq(node) ? (node.toJSON() as unknown[]) : [];
    return addition.items.filter((item) => !existing.includes(item));
  }
  const inner: unknown = 'items' in addition ? addition.items : { [addition.key]: addition.value };
  return rest.reduceRight<unknown>((value, name) => ({ [name]: value }), inner) as Plain;
}

function intoFlow(text: string, node: YAMLMap | YAMLSeq, value: Plain | readonly string[]): string | undefined {
  const end = endOf(node.items.at(-1));
  if (end === undefined) return undefined;
  const parts = Array.isArray(value)
    ? value.map((item) => JSON.stringify(item))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${JSON.stringify(item)}`);
  return `${text.slice(0, end)}, ${parts.join(', ')}${text.slice(end)}`;
}

interface Insertion {
  readonly text: string;
  readonly value: Plain | readonly string[];
  readonly eol: string;
}

function intoBlock({ text, node, value, eol }: Insertion & { readonly node: YAMLMap | YAMLSeq }): string | undefined {
  const end = endOf(node.items.at(-1));
  const start = (node.range ?? [])[0];
  if (end === undefined || start === undefined) return undefined;
  const indent = text.slice(text.lastIndexOf('\n', start - 1) + 1, start);
  if (indent.trim() !== '') return undefined;
  return afterLine(text, end, { body: render(value, indent, eol), eol });
}

/** Inserts below a key without entries: nothing, `{}`, `[]` or `~`. */
function intoEmpty({
  text,
  pair,
  value,
  eol,
}: Insertion & { readonly pair: Pair<Node, Node | null> }): string | undefined {
  const key = pair.key.range;
  if (key == null) return undefined;
  const colon = text.indexOf(':', key[1]);
  const range = pair.value?.range;
  const cleared = range == null || range[0] === range[1] ? text : text.slice(0, colon + 1) + text.slice(range[1]);
  const column = key[0] - (text.lastIndexOf('\n', key[0] - 1) + 1);
  return afterLine(cleared, colon + 1, { body: render(value, ' '.repeat(column + 2), eol), eol });
}

function afterLine(
  text: string,
  offset: number,
  { body, eol }: { readonly body: string; readonly eol: string },
): string {
  const lineEnd = text.indexOf('\n', offset);
  return lineEnd === -1 ? `${text}${eol}${body}` : text.slice(0, lineEnd + 1) + body + text.slice(lineEnd + 1);
}

/** Returns the offset at which a node ends, without comments and blank lines after it; undefined for none. */
export function endOf(node: unknown): number | undefined {
  if (isPair(node)) return endOf(node.value) ?? (node.key as Node).range?.[1];
  if (isCollection(node) && node.flow !== true && node.items.length > 0) return endOf(node.items.at(-1));
  const range = (node as Node | null)?.range;
  if (range == null) return undefined;
  // A block of text ends after its last line.
  const isText = isScalar(node) && (node.type === 'BLOCK_LITERAL' || node.type === 'BLOCK_FOLDED');
  return isText ? Math.max(range[0], range[1] - 1) : range[1];
}

/** Returns a value as lines of YAML. Nested lists of plain values are on one line. */
function render(value: unknown, indent: string, eol: string): string {
  const document = new Document(value);
  visit(document, {
    Seq: (_, node, path) => {
      if (path.length > 3 && node.items.every(isScalar)) node.flow = true;
    },
    Map: (_, node) => {
      if (node.items.length === 0) node.flow = true;
    },
  });
  const lines = document.toString({ lineWidth: 0, flowCollectionPadding: false }).trimEnd().split('\n');
  return lines.map((line) => (line === '' ? eol : `${indent}${line}${eol}`)).join('');
}
