/** The arguments of a tool that clients repeat in HTTP headers (MCP 2026-07-28, Streamable HTTP, custom headers). */
import { isJsonObject } from './json-schema.ts';

/** One argument that belongs in a header: its place in the arguments, and the name after `Mcp-Param-`. */
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
    if (!isJsonObject(node)) return undefined;
    if (Object.hasOwn(node, MARK)) {
      const header = node[MARK];
      const fault = faultOf(node, path, names);
      if (fault !== undefined) return fault;
      names.add(String(header).toLowerCase());
      found.push({ path: path as readonly string[], header: String(header) });
    }
    return firstFault(Object.entries(node), ([key, value]) => {
      if (DATA_KEYS.has(key)) return undefined;
      if (key !== 'properties' || !isJsonObject(value)) return visit(value, undefined);
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
