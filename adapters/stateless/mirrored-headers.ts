/**
 * The HTTP headers that repeat parts of a request, so that proxies need not read its body (MCP 2026-07-28, Streamable
 * HTTP). A server compares them with the body and refuses a difference.
 */
import type { MirroredArgument } from '../../catalogs/schemas/mirrored-arguments.ts';
import { isObject } from '../rpc/wire-message.ts';

/** Returns the headers for these arguments. An absent or null argument has none. */
export function mirrorArguments(
  mirrored: readonly MirroredArgument[],
  args: Readonly<Record<string, unknown>>,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    mirrored.flatMap(({ path, header }) => {
      const value = path.reduce<unknown>(
        (node, key) => (isObject(node) && Object.hasOwn(node, key) ? node[key] : undefined),
        args,
      );
      const isPlain = typeof value === 'string' || typeof value === 'boolean' || Number.isSafeInteger(value);
      return isPlain ? [[`mcp-param-${header.toLowerCase()}`, headerValue(String(value))] as const] : [];
    }),
  );
}

/** The member of the params that `Mcp-Name` repeats, by method. */
const NAMED: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};

/** Returns the headers that repeat the method and the name of a request. */
export function mirrorMethod(
  method: string,
  params: Readonly<Record<string, unknown>>,
): Readonly<Record<string, string>> {
  const name = params[NAMED[method] ?? ''];
  return { 'mcp-method': headerValue(method), ...(typeof name === 'string' && { 'mcp-name': headerValue(name) }) };
}

/** Returns a text as the value of a header: itself, or its UTF-8 in Base64 if a header cannot carry it exactly. */
export function headerValue(text: string): string {
  const isSafe = /^[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text);
  return isSafe ? text : `=?base64?${Buffer.from(text).toString('base64')}?=`;
}
