/** Owns changes to JSON with comments; refuses files in which a key stands twice, since readers differ on which one counts. */
import { createRequire } from 'node:module';
import type { Node } from 'jsonc-parser';
import { fieldsOf, parseJson } from '../config/jsonc.ts';
import type { Editor, Plain } from './edit.ts';

const require = createRequire(import.meta.url);
const jsonc = (): typeof import('jsonc-parser') => require('jsonc-parser') as typeof import('jsonc-parser');

/** Edits that keep comments and layout. */
export const jsonEditor: Editor = { read, set, remove };

function read(text: string): Plain | undefined {
  if (text.trim() === '') return {};
  const parsed = parseJson(text);
  return 'root' in parsed ? (plain(parsed.root) as Plain | undefined) : undefined;
}

/** Own values throughout, `__proto__` too; undefined below a key that stands twice. */
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

function set(text: string, path: readonly string[], value: unknown): string | undefined {
  const { applyEdits, modify } = jsonc();
  const base = text.trim() === '' ? '{}\n' : text;
  const eol = base.includes('\r\n') ? '\r\n' : '\n';
  const indent = /^([ \t]+)\S/m.exec(base)?.[1] ?? '  ';
  const formattingOptions = { eol, insertSpaces: !indent.startsWith('\t'), tabSize: indent.startsWith('\t') ? 1 : indent.length };
  return applyEdits(base, modify(base, [...path], value, { formattingOptions }));
}

/** The library's own removal takes comments between two entries along. */
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

/** The comma that follows, behind blanks and comments. */
function commaAfter(text: string, offset: number): number | undefined {
  const { createScanner, SyntaxKind } = jsonc() as unknown as { createScanner: typeof import('jsonc-parser').createScanner; SyntaxKind: { readonly CommaToken: number } };
  const scanner = createScanner(text, true);
  scanner.setPosition(offset);
  return scanner.scan() === (SyntaxKind.CommaToken as never) ? scanner.getTokenOffset() : undefined;
}

/** Without a part, and without the line when nothing else stands on it. */
function cut(text: string, from: number, to: number): string {
  const lineStart = text.lastIndexOf('\n', from - 1) + 1;
  const nextLine = text.indexOf('\n', to) + 1;
  const isAlone = nextLine > 0 && lineStart > 0 && text.slice(lineStart, from).trim() === '' && text.slice(to, nextLine).trim() === '';
  return isAlone ? text.slice(0, lineStart) + text.slice(nextLine) : text.slice(0, from) + text.slice(to);
}
