/** Takes additions out of a YAML text again, also after others have edited it. No other byte changes. */
import { isDeepStrictEqual } from 'node:util';
import {
  type Document,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  type Node,
  parseDocument,
  type YAMLMap,
  type YAMLSeq,
} from 'yaml';
import { endOf, valueOf } from './config-edit.ts';

/** The texts before and after the additions, and the present one. */
export interface AddedTexts {
  /** Empty for a file that was new. */
  readonly before: string;
  readonly after: string;
  readonly current: string;
}

/** One addition that is still in the text: an entry of a map or an item of a list. */
interface Found {
  readonly holder: YAMLMap | YAMLSeq;
  readonly index: number;
  readonly path: readonly (string | number)[];
  /** The key of the holder; absent for the root and for an item of a list. */
  readonly key?: Node;
}

/** The same value before and after the additions, and its present node. */
interface Sides extends Pick<Found, 'path' | 'key'> {
  readonly old: unknown;
  readonly ours: unknown;
  readonly node: unknown;
  readonly document: Document;
}

type Plain = Readonly<Record<string, unknown>>;

/**
 * Returns the present text without what `after` added to `before`. An entry that someone has edited since stays, and a
 * list or map goes when nothing else is left in it. `kept`: added items that stay. Returns undefined if `after` has
 * changed more than it added, or for an unusual form of YAML.
 */
export function removeAdditions(texts: AddedTexts, kept: ReadonlySet<string> = new Set()): string | undefined {
  const [old, ours] = [valueOf(texts.before), valueOf(texts.after)];
  if (ours === undefined || !hasOnlyAdded(old, ours)) return undefined;
  const added = withoutItems(ours, kept);
  let text = texts.current;
  for (;;) {
    const document = parseDocument(text);
    if (document.errors.length > 0) return undefined;
    const found = findAdded({ old, ours: added, node: document.contents, document, path: [] });
    if (found === undefined) return text;
    const next = cut(text, found);
    if (next === undefined || !isDeepStrictEqual(valueOf(next), valueWithout(document.toJS(), found.path)))
      return undefined;
    text = next;
  }
}

function isPlain(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function hasOnlyAdded(old: unknown, ours: unknown): boolean {
  if (old == null) return true;
  if (Array.isArray(old)) return Array.isArray(ours) && old.every((item, index) => hasOnlyAdded(item, ours[index]));
  if (!isPlain(old)) return old === ours;
  return isPlain(ours) && Object.entries(old).every(([key, value]) => hasOnlyAdded(value, own(ours, key)));
}

function own(value: unknown, key: string): unknown {
  return isPlain(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function withoutItems(value: unknown, items: ReadonlySet<string>): unknown {
  if (Array.isArray(value))
    return value
      .filter((item) => typeof item !== 'string' || !items.has(item))
      .map((item) => withoutItems(item, items));
  return isPlain(value)
    ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withoutItems(inner, items)]))
    : value;
}

function findAdded(sides: Sides): Found | undefined {
  if (isMap(sides.node) && isPlain(sides.ours)) return findEntry(sides, sides.node);
  return isSeq(sides.node) && Array.isArray(sides.ours) ? findItem(sides, sides.node, sides.ours) : undefined;
}

function findEntry({ old, ours, document, path, key: outer }: Sides, holder: YAMLMap): Found | undefined {
  for (const [index, { key, value }] of holder.items.entries()) {
    const name = isScalar(key) ? String(key.value) : '';
    const [was, is] = [own(old, name), own(ours, name)];
    if (is === undefined || isDeepStrictEqual(was, is)) continue;
    const at = [...path, name];
    const isOurs = was === undefined && isDeepStrictEqual(plain(value, document), is);
    // A collection that setup made goes when its last entry is gone.
    const isEmptied = was === undefined && typeof is === 'object' && isCollection(value) && value.items.length === 0;
    if (isOurs || isEmptied) return { holder, index, path: at, ...(outer !== undefined && { key: outer }) };
    const inner = findAdded({ old: was, ours: is, node: value, document, path: at, key: key as Node });
    if (inner !== undefined) return inner;
  }
  return undefined;
}

function findItem({ old, document, path, key }: Sides, holder: YAMLSeq, ours: readonly unknown[]): Found | undefined {
  const before: readonly unknown[] = Array.isArray(old) ? old : [];
  const added = ours.slice(before.length);
  for (const [index, node] of holder.items.entries()) {
    const value = plain(node, document);
    const at = [...path, index];
    if (added.some((item) => isDeepStrictEqual(item, value)))
      return { holder, index, path: at, ...(key !== undefined && { key }) };
    const twin = before.findIndex((was, place) => !isDeepStrictEqual(was, ours[place]) && isTwin(ours[place], value));
    const inner = twin < 0 ? undefined : findAdded({ old: before[twin], ours: ours[twin], node, document, path: at });
    if (inner !== undefined) return inner;
  }
  return undefined;
}

/** Items of a list move when others insert some, so an edited item is known by its id. */
function isTwin(one: unknown, other: unknown): boolean {
  const id = own(one, 'id');
  return isDeepStrictEqual(one, other) || (id !== undefined && id === own(other, 'id'));
}

function plain(node: unknown, document: Document): unknown {
  return (node as Node | null)?.toJS(document) ?? null;
}

function valueWithout(root: unknown, path: readonly (string | number)[]): unknown {
  const [key = '', ...rest] = path;
  if (Array.isArray(root))
    return rest.length === 0
      ? root.filter((_, index) => index !== key)
      : root.map((item, index) => (index === key ? valueWithout(item, rest) : item));
  return Object.fromEntries(
    Object.entries(root as Plain).flatMap(([name, value]) => {
      if (name !== key) return [[name, value] as const];
      return rest.length === 0 ? [] : [[name, valueWithout(value, rest)] as const];
    }),
  );
}

function cut(text: string, found: Found): string | undefined {
  return found.holder.flow === true ? cutFromFlow(text, found) : cutLines(text, found);
}

function cutFromFlow(text: string, { holder, index }: Found): string | undefined {
  const [start, end] = [startOf(holder.items[index]), endOf(holder.items[index])];
  const { range } = holder;
  if (start === undefined || end === undefined || range == null) return undefined;
  if (holder.items.length === 1) return text.slice(0, range[0]) + emptyOf(holder) + text.slice(range[1]);
  const next = startOf(holder.items[index + 1]);
  const last = endOf(holder.items[index - 1]);
  const [from, to] = next === undefined ? [last ?? start, end] : [start, next];
  const gap = text.slice(from, start) + text.slice(end, to);
  return gap.includes('#') ? undefined : text.slice(0, from) + text.slice(to);
}

function cutLines(text: string, { holder, index, key }: Found): string | undefined {
  const [start, end] = [startOf(holder.items[index]), endOf(holder.items[index])];
  if (start === undefined || end === undefined) return undefined;
  const line = text.lastIndexOf('\n', start - 1) + 1;
  if (!(isSeq(holder) ? /^ *- +$/ : /^ *$/).test(text.slice(line, start))) return undefined;
  const lineEnd = text.indexOf('\n', end);
  const rest = lineEnd === -1 ? '' : text.slice(lineEnd + 1);
  if (holder.items.length > 1 || key === undefined) {
    // Two blank lines around the entry become one.
    const isBetweenBlanks = text.slice(0, line).endsWith('\n\n') && /^(?:\n|$)/.test(rest);
    return text.slice(0, isBetweenBlanks ? line - 1 : line) + rest;
  }
  const colon = text.indexOf(':', key.range?.[1]);
  return `${text.slice(0, colon + 1)} ${emptyOf(holder)}${text.slice(colon + 1, line)}${rest}`;
}

function emptyOf(holder: YAMLMap | YAMLSeq): string {
  return isSeq(holder) ? '[]' : '{}';
}

function startOf(item: unknown): number | undefined {
  const node = (item as { readonly key?: unknown } | undefined)?.key ?? item;
  return (node as Node | null | undefined)?.range?.[0];
}
