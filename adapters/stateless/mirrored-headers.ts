/**
 * The HTTP headers that repeat parts of a request, so that proxies need not read its body (MCP 2026-07-28, Streamable
 * HTTP). A server compares them with the body and refuses a difference.
 */
import { isObject } from '../rpc/wire-message.ts';

/** One argument that a server wants in a header: its place in the arguments, and the name after `Mcp-Param-`. */
export interface MirroredArgument {
  readonly path: readonly string[];
  readonly header: string;
}

const MARK = 'x-mcp-header';
/** Field names of HTTP (RFC 9110 §5.1). */
const TOKEN = /^[\w!#$%&'*+\-.^`|~]{1,128}$/;
const TYPES: ReadonlySet<unknown> = new Set(['string', 'integer', 'boolean']);
/** Keys of JSON Schema whose values are data, not schemas. */
const DATA_KEYS: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples', MARK]);

/**
 * Returns the arguments that the input schema of a tool wants in headers, or the fault for which the revision says that
 * clients must not use the tool.
 */
export function mirroredArguments(schema: unknown): readonly MirroredArgument[] | string {
  const found: MirroredArgument[] = [];
  const names = new Set<string>();
  /** `path` is absent where a mark is not allowed. */
  const visit = (node: unknown, path: readonly string[] | undefined): string | undefined => {
    if (Array.isArray(node)) return firstFault(node, (item) => visit(item, undefined));
    if (!isObject(node)) return undefined;
    if (Object.hasOwn(node, MARK)) {
      const header = node[MARK];
      const fault = faultOf(node, path, names);
      if (fault !== undefined) return fault;
      names.add(String(header).toLowerCase());
      found.push({ path: path as readonly string[], header: String(header) });
    }
    return firstFault(Object.entries(node), ([key, value]) => {
      if (DATA_KEYS.has(key)) return undefined;
      if (key !== 'properties' || !isObject(value)) return visit(value, undefined);
      return firstFault(Object.entries(value), ([name, child]) => visit(child, path && [...path, name]));
    });
  };
  return visit(schema, []) ?? found;
}

function firstFault<Item>(items: readonly Item[], faultIn: (item: Item) => string | undefined): string | undefined {
  for (const item of items) {
    const fault = faultIn(item);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function faultOf(
  node: Readonly<Record<string, unknown>>,
  path: readonly string[] | undefined,
  names: ReadonlySet<string>,
): string | undefined {
  const header = node[MARK];
  if (path === undefined || path.length === 0) return `${MARK} is not on a property of an object`;
  if (typeof header !== 'string' || !TOKEN.test(header)) return `${MARK} is not a name of a header`;
  if (!TYPES.has(node.type)) return `${MARK} is on a property that is no string, integer or boolean`;
  return names.has(header.toLowerCase()) ? `${MARK} names one header twice` : undefined;
}

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
