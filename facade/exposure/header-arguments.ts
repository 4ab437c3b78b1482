/** The arguments of a tool that clients repeat in HTTP headers (MCP 2026-07-28, transports, custom headers). */
import { isObject, type JsonObject } from '../../adapters/rpc/wire-message.ts';
import { memoize } from '../../catalogs/text/collections.ts';
import type { ExposedTool } from './exposed-tool.ts';

/** An argument, and the header that repeats it. */
export interface HeaderArgument {
  /** The keys that lead to it in the arguments. */
  readonly path: readonly string[];
  /** The name of the header, in lower case. */
  readonly header: string;
}

const MARK = 'x-mcp-header';
/** A token of HTTP (RFC 9110 §5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Returns them as the schema says that the client sees. Takes linear time, once for each definition. */
export const headerArgumentsOf = memoize(({ text }: ExposedTool): readonly HeaderArgument[] => {
  if (!text.includes(MARK)) return [];
  const { inputSchema } = JSON.parse(text) as { readonly inputSchema?: unknown };
  return [...marked(inputSchema, [])];
});

/** Only properties of properties count: through a list or a choice, an argument would have no fixed place. */
function* marked(schema: unknown, path: readonly string[]): Iterable<HeaderArgument> {
  const properties = isObject(schema) && isObject(schema.properties) ? schema.properties : ({} as JsonObject);
  for (const [key, property] of Object.entries(properties)) {
    if (!isObject(property)) continue;
    const name = property[MARK];
    if (typeof name === 'string' && TOKEN.test(name))
      yield { path: [...path, key], header: `mcp-param-${name.toLowerCase()}` };
    yield* marked(property, [...path, key]);
  }
}
