/**
 * Undoes a change of a client's file that was edited since: what the change removed comes back, what it added goes, and
 * everything else stays as it is now.
 */
import { isDeepStrictEqual } from 'node:util';
import { diff3Merge } from 'node-diff3';
import type { ClientFormat } from '../client-formats.ts';
import { type Editor, jsonEditor, type Plain } from './edit-json.ts';
import { tomlEditor } from './edit-toml.ts';

/** The three texts. Each may begin with a byte order mark. */
export interface ChangedTexts {
  /** Before the change; absent for a file that it made. */
  readonly before?: string;
  readonly after: string;
  readonly current: string;
}

/** One value to set, or to remove (absent). */
interface Edit {
  readonly path: readonly string[];
  readonly value?: unknown;
}

/**
 * Returns the text without the change; undefined if only a person can restore it. Lines that no one else has touched
 * come back byte for byte.
 */
export function restoreText(texts: ChangedTexts, format: ClientFormat): string | undefined {
  const { before = '', after, current } = texts;
  if (current === after) return before;
  const editor = format.syntax === 'toml' ? tomlEditor : jsonEditor;
  const [old, ours, theirs] = [before, after, current].map((text) => editor.read(withoutMark(text)));
  if (old === undefined || ours === undefined || theirs === undefined) return undefined;
  const edits = editsBack({ old, ours, now: theirs, path: [] });
  const wanted = edits.reduce(applied, theirs);
  const merged = mergeLines(texts);
  if (merged !== undefined && isDeepStrictEqual(editor.read(withoutMark(merged)), wanted)) return merged;
  const mark = current.slice(0, current.length - withoutMark(current).length);
  const text = edits.reduce<string | undefined>(
    (body, edit) => (body === undefined ? undefined : edited(editor, body, edit)),
    withoutMark(current),
  );
  return text !== undefined && isDeepStrictEqual(editor.read(text), wanted) ? mark + text : undefined;
}

function withoutMark(text: string): string {
  return text.replace(/^\uFEFF/, '');
}

/** The most lines that are compared, because repeated lines cost the product of their numbers. */
const MAX_LINES = 2000;

/**
 * Takes a change back line by line. Returns undefined if others have changed the same lines, or more than
 * `MAX_LINES` lie between the first and the last difference.
 */
export function mergeLines({ before = '', after, current }: ChangedTexts): string | undefined {
  const all = [current, after, before].map((text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
  const shortest = Math.min(...all.map(({ length }) => length));
  const [own = []] = all;
  const isSame = (index: number): boolean => all.every((lines) => lines.at(index) === own.at(index));
  let head = 0;
  while (head < shortest && isSame(head)) head += 1;
  let tail = 0;
  while (tail < shortest - head && isSame(-1 - tail)) tail += 1;
  const [theirs = [], ours = [], old = []] = all.map((lines) => lines.slice(head, lines.length - tail));
  if (Math.max(theirs.length, ours.length, old.length) > MAX_LINES) return undefined;
  const parts = diff3Merge(theirs, ours, old);
  if (parts.some(({ conflict }) => conflict !== undefined)) return undefined;
  const merged = parts.flatMap(({ ok = [] }) => ok);
  return [...own.slice(0, head), ...merged, ...own.slice(own.length - tail)].join('');
}

function isObject(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The same object in the three texts, and where it is. */
interface Sides {
  readonly old: Plain;
  readonly ours: Plain;
  readonly now: Plain;
  readonly path: readonly string[];
}

/** Returns the edits that take `now` back to `old`, wherever `ours` differs from it and no one else has decided. */
function editsBack({ old, ours, now, path }: Sides): readonly Edit[] {
  return [...new Set([...Object.keys(old), ...Object.keys(ours)])].flatMap((key) => {
    const [was, is, present] = [own(old, key), own(ours, key), own(now, key)];
    const at = [...path, key];
    if (isDeepStrictEqual(was, is)) return [];
    // A list or a map that has become empty may be gone; what was in it comes back all the same.
    if (isObject(was) && isObject(is ?? {}) && isObject(present ?? {}))
      return editsBack({ old: was, ours: (is ?? {}) as Plain, now: (present ?? {}) as Plain, path: at });
    if (was === undefined && isObject(is) && isObject(present) && path.length === 0)
      return editsBack({ old: {}, ours: is, now: present, path: at });
    if (Array.isArray(is) && Array.isArray(present) && Array.isArray(was ?? []))
      return [{ path: at, value: listBack((was ?? []) as unknown[], is, present) }];
    // What a person has written meanwhile stays.
    if (was !== undefined && present !== undefined && !isDeepStrictEqual(present, is)) return [];
    if (was === undefined) return present === undefined ? [] : [{ path: at }];
    return [{ path: at, value: was }];
  });
}

function own(object: Plain, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Removes the items that the change added, and adds those that it removed. */
function listBack(was: readonly unknown[], is: readonly unknown[], present: readonly unknown[]): readonly unknown[] {
  const has = (list: readonly unknown[], item: unknown): boolean => list.some((one) => isDeepStrictEqual(one, item));
  return [
    ...present.filter((item) => has(was, item) || !has(is, item)),
    ...was.filter((item) => !has(is, item) && !has(present, item)),
  ];
}

function applied(root: Plain, { path: [key = '', ...rest], value }: Edit): Plain {
  const others = Object.entries(root).filter(([name]) => name !== key);
  const inner = own(root, key);
  const next = rest.length === 0 ? value : applied(isObject(inner) ? inner : {}, { path: rest, value });
  return Object.fromEntries(next === undefined ? others : [...others, [key, next]]);
}

function edited(editor: Editor, text: string, { path, value }: Edit): string | undefined {
  return value === undefined ? editor.remove(text, path) : editor.set(text, path, value);
}
