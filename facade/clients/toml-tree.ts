/** Parses TOML to the same tree of nodes as JSON, so that one reader reads both. */
import { createRequire } from 'node:module';
import type { Node } from 'jsonc-parser';
import type { ConfigPath } from '../config/config-problems.ts';

const require = createRequire(import.meta.url);

/**
 * Returns the root of a TOML text as a node, or the place of its first error. The offset of a node is that of the
 * header of its table. Never throws.
 */
export function parseToml(
  text: string,
): { readonly root: Node } | { readonly place: ConfigPath; readonly fault: string } {
  const { parse } = require('smol-toml') as typeof import('smol-toml');
  try {
    return { root: new TomlTree(text).node(parse(text), []) };
  } catch (thrown) {
    // The parser's message quotes the file, which may contain secrets.
    const { line = 1, column = 1 } = thrown as { line?: number; column?: number };
    return { place: { line: Math.max(line, 1), column: Math.max(column, 1) }, fault: 'the line is not TOML' };
  }
}

/** Returns a key as TOML must write it. */
export function tomlKey(key: string): string {
  return /^[A-Za-z0-9_-]+$/.test(key) ? key : JSON.stringify(key);
}

const HEADER = /^[ \t]*\[[ \t]*([^\]\n]+?)[ \t]*\]/gm;

class TomlTree {
  /** Headers of tables as written, each with its first offset. */
  readonly #headers = new Map<string, number>();

  constructor(text: string) {
    for (const { 1: name = '', index } of text.matchAll(HEADER))
      if (!this.#headers.has(name)) this.#headers.set(name, index);
  }

  node(value: unknown, at: readonly string[]): Node {
    const offset = this.#offset(at);
    if (Array.isArray(value))
      return { type: 'array', offset, length: 0, children: value.map((item) => this.node(item, at)) };
    if (typeof value === 'object' && value !== null && !(value instanceof Date)) {
      const children = Object.entries(value).map(
        ([key, item]): Node => ({
          type: 'property',
          offset,
          length: 0,
          children: [{ type: 'string', offset, length: 0, value: key }, this.node(item, [...at, key])],
        }),
      );
      return { type: 'object', offset, length: 0, children };
    }
    const type = typeof value === 'number' || typeof value === 'boolean' ? typeof value : 'string';
    return { type: type as Node['type'], offset, length: 0, value: type === 'string' ? String(value) : value };
  }

  /** Finds only tables of two names, because those are the tables of servers. */
  #offset(at: readonly string[]): number {
    return at.length < 2 ? 0 : (this.#headers.get(at.slice(0, 2).map(tomlKey).join('.')) ?? 0);
  }
}
