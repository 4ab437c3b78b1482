/** Changes whole tables in the lines of a TOML text. Servers written inside another line are refused. */
import { createRequire } from 'node:module';
import { tomlKey } from '../toml-tree.ts';
import type { Editor, Plain } from './edit-json.ts';

const require = createRequire(import.meta.url);
const toml = (): typeof import('smol-toml') => require('smol-toml') as typeof import('smol-toml');

/**
 * Edits that keep every byte outside the tables they concern. The comparison in `changeServers` finds lines that were
 * misread.
 */
export const tomlEditor: Editor = { read, set, remove };

function read(text: string): Plain | undefined {
  try {
    return ownValues(toml().parse(text)) as Plain;
  } catch {
    return undefined;
  }
}

/** The parser's tables have no prototype, and its dates are objects of its own. */
function ownValues(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ownValues);
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'object' && value !== null
    ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, ownValues(item)]))
    : value;
}

function set(text: string, path: readonly string[], value: unknown): string {
  const { lines, eol } = linesOf(text);
  const range = tableOf(lines, path);
  const kept = range === undefined ? lines : [...lines.slice(0, range.from), ...lines.slice(range.to)];
  const body = [
    `[${path.map(tomlKey).join('.')}]`,
    ...toml()
      .stringify(value as Record<string, unknown>)
      .trimEnd()
      .split('\n'),
  ];
  const before = kept.join('').trimEnd();
  return `${before}${before === '' ? '' : eol + eol}${body.join(eol)}${eol}`;
}

function remove(text: string, path: readonly string[]): string | undefined {
  const { lines } = linesOf(text);
  const range = tableOf(lines, path);
  return range === undefined ? undefined : [...lines.slice(0, range.from), ...lines.slice(range.to)].join('');
}

function linesOf(text: string): { readonly lines: readonly string[]; readonly eol: string } {
  return { lines: text.match(/[^\n]*\n|[^\n]+$/g) ?? [], eol: text.includes('\r\n') ? '\r\n' : '\n' };
}

/**
 * Returns the lines of a table and of the tables below it, which must follow it. Comments before the next table stay
 * with that table.
 */
function tableOf(
  lines: readonly string[],
  path: readonly string[],
): { readonly from: number; readonly to: number } | undefined {
  const headers = lines.map(headerOf);
  const isOurs = (header: readonly string[] | undefined): boolean =>
    header !== undefined && path.every((part, index) => header[index] === part);
  const from = headers.findIndex(isOurs);
  if (from < 0) return undefined;
  const next = headers.findIndex((header, index) => index > from && header !== undefined && !isOurs(header));
  let to = next < 0 ? lines.length : next;
  while (next >= 0 && to > from + 1 && /^\s*(#.*)?$/.test((lines[to - 1] ?? '').trimEnd())) to -= 1;
  const isBlank = /^\s*$/.test(lines[to] ?? 'x');
  return { from, to: isBlank ? to + 1 : to };
}

/** Returns the names in the header of a table, such as `[a."b c".d]`. */
function headerOf(line: string): readonly string[] | undefined {
  const inner = /^\s*\[\[?(.+?)\]\]?\s*(?:#.*)?$/.exec(line.trimEnd())?.[1];
  if (inner === undefined) return undefined;
  const parts = [...inner.matchAll(/\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)/g)];
  return parts.map(([, quoted, literal, bare]) => (quoted === undefined ? (literal ?? bare ?? '') : unquote(quoted)));
}

function unquote(text: string): string {
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    // The text has an escape that JSON does not know. `changeServers` refuses a change that misreads it.
    return text;
  }
}
