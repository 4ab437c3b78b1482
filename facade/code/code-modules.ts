/** The modules that code can import: one for each server with tools that the caller sees, and host:tollgate. */
import { withoutPinned } from '../../catalogs/projection/pinned-arguments.ts';
import { CODE } from '../../catalogs/servers/shipped-servers.ts';
import { memoize } from '../../catalogs/text/collections.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { NameTable } from '../exposure/name-table.ts';
import { functionNamesOf, moduleNameOf } from './declarations/function-names.ts';

/** The module of the primitives. */
export const OWN_MODULE = 'host:tollgate';

/** A function of a module. */
export interface ModuleFunction {
  readonly name: string;
  readonly exposed: ExposedTool;
  /** The definition with the schemas of the server itself, without pinned arguments. */
  readonly tool: RawTool;
}

/** A module. */
export interface CodeModule {
  readonly name: string;
  /** Absent for host:tollgate. */
  readonly server?: string;
  /** By name, sorted. */
  readonly functions: ReadonlyMap<string, ModuleFunction>;
}

/** Returns the modules of a table by name: host:tollgate first, the others sorted. Made once for each table. */
export const modulesOf = memoize((table: NameTable): ReadonlyMap<string, CodeModule> => {
  const byServer = new Map<string, ExposedTool[]>();
  for (const exposed of table.visible) {
    const server = exposed.primitive === undefined ? exposed.server.name : '';
    if (server !== CODE) byServer.set(server, [...(byServer.get(server) ?? []), exposed]);
  }
  const modules = [...byServer].map(([server, tools]) => moduleOf(server, tools));
  return new Map(modules.sort(byName).map((module) => [module.name, module]));
});

function moduleOf(server: string, exposed: readonly ExposedTool[]): CodeModule {
  // A tool with several names is several functions: the first has the tool's own name.
  const seen = new Set<string>();
  const wanted = new Map(
    exposed.map((one) => {
      const own = one.entry?.tool.name ?? one.name;
      const name = seen.has(own) ? one.name : own;
      seen.add(own);
      return [name, one] as const;
    }),
  );
  const names = functionNamesOf([...wanted.keys()]);
  const functions = [...wanted].map(
    ([wish, one]): ModuleFunction => ({ name: names.get(wish) ?? wish, exposed: one, tool: definitionOf(one) }),
  );
  return {
    name: server === '' ? OWN_MODULE : moduleNameOf(server),
    ...(server !== '' && { server }),
    functions: new Map(functions.sort(byName).map((one) => [one.name, one])),
  };
}

/**
 * Returns the definition as it is listed, with the argument schema of the server itself: the listed one may be
 * rewritten for a provider, and says less.
 */
function definitionOf({ text, entry, args, name }: ExposedTool): RawTool {
  const listed = JSON.parse(text) as RawTool;
  const schema = entry?.tool.inputSchema ?? args.schema;
  const inputSchema = withoutPinned(schema as Record<string, unknown>, Object.keys(args.pins));
  return { ...listed, name: entry?.tool.name ?? name, inputSchema } as RawTool;
}

function byName(one: { readonly name: string }, other: { readonly name: string }): number {
  return one.name < other.name ? -1 : 1;
}
