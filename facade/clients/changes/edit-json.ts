/**
 * Changes JSON with comments. Files in which a key appears twice are refused, because readers differ on which one
 * counts.
 */
import { createRequire } from 'node:module';
import type { Node } from 'jsonc-parser';
import { fieldsOf, parseJson } from '../../config/reading/jsonc.ts';

const require = createRequire(import.meta.url);
const jsonc = (): typeof import('jsonc-parser') => require('jsonc-parser') as typeof import('jsonc-parser');

/** Edits that keep comments and layout. */
export const jsonEditor: Editor = { read, set, remove };

function read(text: string): Plain | undefined {
  if (text.trim() === '') return {};
  const parsed = parseJson(text);
  return 'root' in parsed ? (plain(parsed.root) as Plain | undefined) : undefined;
}

/** Returns the plain value of a node, also of a key `__proto__`; undefined if a key appears twice. */
function plain(node: Node): unknown {
  if (node.type === 'array') {
    const items = (node.children ?? []).map(plain);
    return items.includes(undefined) ? undefined : items;
  }
  if (node.type !== 'object') return node.value;
  const { fields, twice } = fieldsOf(node);
  const values = [...fields].map(([key, value]) => [key, plain(value)] as const);
  return twice.length > 0 || values.some(([, value]) => value === undefined) ? undefined : Object.fromEntries(values);
}

/** Sets a value. The library's own insertion would reformat the line before it. */
function set(text: string, path: readonly string[], value: unknown): string | undefined {
  const base = text.trim() === '' ? '{\n}\n' : text;
  const parsed = parseJson(base);
  if (!('root' in parsed)) return undefined;
  let node = parsed.root;
  let depth = 0;
  for (const key of path) {
    const next: Node | undefined = fieldsOf(node).fields.get(key);
    if (next === undefined) break;
    [node, depth] = [next, depth + 1];
  }
  const layout = layoutOf(base);
  if (depth === path.length)
    return (
      base.slice(0, node.offset) +
      layout.write(value, layout.indentAt(node.offset)) +
      base.slice(node.offset + node.length)
    );
  if (node.type !== 'object') return undefined;
  const [name = '', ...rest] = path.slice(depth);
  return insert(base, node, {
    name,
    value: rest.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value),
    layout,
  });
}

interface Layout {
  readonly eol: string;
  readonly step: string;
  /** The indentation of the line of an offset. */
  readonly indentAt: (offset: number) => string;
  /** Writes a value over several lines, all but the first indented. */
  readonly write: (value: unknown, indent: string) => string;
}

function layoutOf(text: string): Layout {
  const eol = text.includes('\r\n') ? '\r\n' : '\n';
  const step = /^([ \t]+)["{]/m.exec(text)?.[1] ?? '  ';
  return {
    eol,
    step,
    indentAt: (offset) => /^[ \t]*/.exec(text.slice(text.lastIndexOf('\n', offset - 1) + 1))?.[0] ?? '',
    write: (value, indent) => JSON.stringify(value, null, step).replaceAll('\n', `${eol}${indent}`),
  };
}

/** Inserts after the last entry, and after a comment at the end of its line. All other text stays. */
function insert(
  text: string,
  object: Node,
  { name, value, layout }: { readonly name: string; readonly value: unknown; readonly layout: Layout },
): string {
  const { eol, step, indentAt, write } = layout;
  const last = object.children?.at(-1);
  const inner = last === undefined ? indentAt(object.offset) + step : indentAt(last.offset);
  const property = `${inner}${JSON.stringify(name)}: ${write(value, inner)}`;
  const close = object.offset + object.length - 1;
  if (last === undefined) {
    const rest = text.slice(object.offset + 1, close);
    const body = `${rest.trimEnd()}${eol}${property}${eol}${indentAt(object.offset)}`;
    return text.slice(0, object.offset + 1) + body + text.slice(close);
  }
  const end = last.offset + last.length;
  const comma = commaAfter(text, end);
  if (!text.slice(object.offset, close).includes('\n'))
    return `${text.slice(0, end)}, ${JSON.stringify(name)}: ${JSON.stringify(value)}${text.slice(end)}`;
  const head = comma === undefined ? `${text.slice(0, end)},` : text.slice(0, comma + 1);
  const tail = text.slice(comma === undefined ? end : comma + 1);
  const restOfLine = /^[ \t]*(?:\/\/[^\r\n]*|\/\*[^*\r\n]*\*\/[ \t]*)?(?=\r?\n)/.exec(tail)?.[0] ?? '';
  return `${head}${restOfLine}${eol}${property}${comma === undefined ? '' : ','}${tail.slice(restOfLine.length)}`;
}

/** Removes an entry. The library's own removal would also remove comments between two entries. */
function remove(text: string, path: readonly string[]): string | undefined {
  const { findNodeAtLocation } = jsonc();
  const parsed = parseJson(text);
  const property = 'root' in parsed ? findNodeAtLocation(parsed.root, [...path])?.parent : undefined;
  const siblings = property?.parent?.children ?? [];
  if (property === undefined) return undefined;
  const end = property.offset + property.length;
  const comma = commaAfter(text, end);
  if (comma !== undefined) return cut(text.slice(0, comma) + text.slice(comma + 1), property.offset, end);
  const previous = siblings[siblings.indexOf(property) - 1];
  const before = previous === undefined ? undefined : commaAfter(text, previous.offset + previous.length);
  const rest = cut(text, property.offset, end);
  return before === undefined ? rest : rest.slice(0, before) + rest.slice(before + 1);
}

/** Returns the offset of the comma that follows after blanks and comments. */
function commaAfter(text: string, offset: number): number | undefined {
  const { createScanner, SyntaxKind } = jsonc() as unknown as {
    createScanner: typeof import('jsonc-parser').createScanner;
    SyntaxKind: { readonly CommaToken: number };
  };
  const scanner = createScanner(text, true);
  scanner.setPosition(offset);
  return scanner.scan() === (SyntaxKind.CommaToken as never) ? scanner.getTokenOffset() : undefined;
}

/** Removes a part of a text, and its line if nothing else is on it. */
function cut(text: string, from: number, to: number): string {
  const lineStart = text.lastIndexOf('\n', from - 1) + 1;
  const nextLine = text.indexOf('\n', to) + 1;
  const isAlone =
    nextLine > 0 &&
    lineStart > 0 &&
    text.slice(lineStart, from).trim() === '' &&
    text.slice(to, nextLine).trim() === '';
  return isAlone ? text.slice(0, lineStart) + text.slice(nextLine) : text.slice(0, from) + text.slice(to);
}
/** Reads and changes text in one syntax. Each function returns undefined if it cannot. */
export interface Editor {
  read(text: string): Plain | undefined;
  set(text: string, path: readonly string[], value: unknown): string | undefined;
  remove(text: string, path: readonly string[]): string | undefined;
}

/** Plain values as a file has them. */
export type Plain = Readonly<Record<string, unknown>>;
