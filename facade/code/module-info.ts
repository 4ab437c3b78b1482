/** Answers list_modules and module_info from the catalog of tools, without starting a server (HA-14). */
import type { InProcessAnswer } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { plural } from '../../catalogs/text/readable-text.ts';
import { nearestName } from '../../catalogs/validation/validation-faults.ts';
import { type CodeModule, type ModuleFunction, modulesOf } from './code-modules.ts';
import type { CodeTool } from './code-server.ts';
import { exampleOf } from './declarations/call-example.ts';
import { signatureOf } from './declarations/call-signature.ts';
import { type DeclaredFunction, moduleDeclaration } from './declarations/module-declaration.ts';

/** Modules on one page. */
const MODULES = 50;
/** Functions of a module that are shown as signatures on one page, and those that are shown with full types. */
const SIGNATURES = 60;
const FULL = 8;

/** Lists the modules that the caller's code can import. */
export const listModules: CodeTool = async ({ call, session, facade }) => {
  const { page = 1 } = call.args.value as { readonly page?: number };
  const modules = [...modulesOf(await facade.tableOf(session)).values()];
  const shown = pageOf(modules, { page, size: MODULES });
  const lines = shown.map(({ name, functions }) => {
    const names = [...functions.keys()];
    const some = names.slice(0, 4).join(', ');
    return `${name}: ${plural(names.length, 'function')} (${some}${names.length > 4 ? ', …' : ''})`;
  });
  return {
    text: `${lines.join('\n')}${nextPage({ page, size: MODULES, count: modules.length })}`,
    hits: shown.length,
  };
};

/** Shows a module: declarations if it is small or if functions are named, otherwise signatures. */
export const moduleInfo: CodeTool = async ({ call, session, facade }): Promise<InProcessAnswer> => {
  const {
    module: wanted,
    functions,
    page = 1,
  } = call.args.value as {
    readonly module: string;
    readonly functions?: readonly string[];
    readonly page?: number;
  };
  const modules = modulesOf(await facade.tableOf(session));
  const module = findModule(modules, wanted);
  const all = [...module.functions.values()];
  const named = functions?.map((name) => findFunction(module, name));
  const isFull = named !== undefined || all.length <= FULL;
  const size = isFull ? FULL : SIGNATURES;
  const shown = pageOf(named ?? all, { page, size });
  const rest = nextPage({ page, size, count: (named ?? all).length });
  const text = isFull
    ? await fullText(module, shown)
    : `${shown.map((one) => signatureOf(declared(one))).join('\n')}\n` +
      `Full types: module_info {"module": "${module.name}", "functions": ["${shown[0]?.name ?? ''}"]}`;
  return { text: `${text}${rest}`, hits: shown.length };
};

async function fullText({ name }: CodeModule, shown: readonly ModuleFunction[]): Promise<string> {
  const tools = shown.map(declared);
  const names = shown.slice(0, 3).map((one) => one.name);
  return [
    await moduleDeclaration({ name, tools }),
    `import { ${names.join(', ')} } from '${name}';`,
    ...tools.slice(0, 3).map(exampleOf),
  ].join('\n');
}

function declared({ name, tool, exposed }: ModuleFunction): DeclaredFunction {
  const { description, inputSchema, outputSchema } = tool;
  const { verb } = exposed.entry?.semantics ?? { verb: exposed.primitive === 'read' ? 'read' : 'write' };
  const annotations = { readOnlyHint: verb === 'read', destructiveHint: verb === 'destructive' };
  return {
    name: tool.name,
    functionName: name,
    inputSchema,
    annotations,
    ...(description !== undefined && { description }),
    ...(outputSchema !== undefined && { outputSchema }),
  };
}

/** The beginning `host:` or `host:mcp-` may be left out. */
function findModule(modules: ReadonlyMap<string, CodeModule>, wanted: string): CodeModule {
  const found = modules.get(wanted) ?? modules.get(`host:${wanted}`) ?? modules.get(`host:mcp-${wanted}`);
  if (found !== undefined) return found;
  const near = nearestName(wanted, [...modules.keys()]);
  throw new TollgateError('ARGS_INVALID', {
    detail: `module: there is no module ${JSON.stringify(wanted)}.`,
    next: near === undefined ? 'Call list_modules for the names.' : `Did you mean ${near}? list_modules shows all.`,
  });
}

function findFunction(module: CodeModule, wanted: string): ModuleFunction {
  const found = module.functions.get(wanted) ?? [...module.functions.values()].find(({ tool }) => tool.name === wanted);
  if (found !== undefined) return found;
  const near = nearestName(wanted, [...module.functions.keys()]);
  throw new TollgateError('ARGS_INVALID', {
    detail: `functions: ${module.name} has no function ${JSON.stringify(wanted)}.`,
    next: near === undefined ? `Call module_info with {"module": "${module.name}"}.` : `Did you mean ${near}?`,
  });
}

interface Page {
  readonly page: number;
  readonly size: number;
}

function pageOf<T>(items: readonly T[], { page, size }: Page): readonly T[] {
  return items.slice((page - 1) * size, page * size);
}

function nextPage({ page, size, count }: Page & { readonly count: number }): string {
  const left = count - page * size;
  return left <= 0 ? '' : `\n[${plural(left, 'more')}: page ${page + 1}]`;
}
