/**
 * Parses JSON with comments into nodes with their offsets. Refuses files with errors, which the parser would repair.
 */
import { createRequire } from 'node:module';
import type { Node, ParseError } from 'jsonc-parser';
import type { ConfigPath } from '../config-problems.ts';

const require = createRequire(import.meta.url);

/** Returns the root object of a JSON text with comments, or the place of its first error. Never throws. */
export function parseJson(
  text: string,
): { readonly root: Node } | { readonly place: ConfigPath; readonly fault: string } {
  const { parseTree, printParseErrorCode } = require('jsonc-parser') as typeof import('jsonc-parser');
  const errors: ParseError[] = [];
  try {
    const root = parseTree(text, errors, { allowTrailingComma: true });
    const [first] = errors;
    if (root?.type === 'object' && first === undefined) return { root };
    const fault = first === undefined ? 'not an object' : printParseErrorCode(first.error);
    return { place: placeAt(text, first?.offset ?? 0), fault };
  } catch {
    // The parser is recursive, and overflows the stack at many thousand levels of nesting.
    return { place: { line: 1, column: 1 }, fault: 'nested too deeply' };
  }
}

/** Returns line and column of an offset. */
export function placeAt(text: string, offset: number): ConfigPath {
  const before = text.slice(0, offset);
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') };
}

/** Returns the properties of an object, and separately the names that appear twice. */
export function fieldsOf(node: Node | undefined): {
  readonly fields: ReadonlyMap<string, Node>;
  readonly twice: readonly string[];
} {
  const fields = new Map<string, Node>();
  const twice: string[] = [];
  for (const property of node?.type === 'object' ? (node.children ?? []) : []) {
    const [key, value] = property.children ?? [];
    if (key === undefined || value === undefined) continue;
    const name = String(key.value);
    if (fields.has(name)) twice.push(name);
    fields.set(name, value);
  }
  return { fields, twice };
}
