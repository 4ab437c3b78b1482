/**
 * Serves the primitives through another server, as a mapping describes. Actions that this server cannot do correctly
 * are refused before it is called.
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { normalizeArguments } from '../../../catalogs/primitives/argument-spellings.ts';
import { type Mapping, renderArguments, type Strategy } from '../../../catalogs/primitives/primitive-mapping.ts';
import { ARGUMENT_SCHEMAS, checkArguments } from '../../../catalogs/primitives/primitive-schemas.ts';
import { CallPathHandles, PathHandle, whileInPlace } from '../../../catalogs/readers/path-handles.ts';
import { locate } from '../../../catalogs/readers/path-location.ts';
import type { RawTool, Semantics, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  type LoweredPrimitive,
  PRIMITIVES,
  type Primitive,
  type PrimitiveBackend,
  type UpstreamCall,
} from '../../port.ts';
import type { JsonDoc } from '../../rpc/wire-message.ts';
import { KeyedLocks, SeenVersions } from '../workspace/action-context.ts';
import { refusalResult } from '../workspace/file-text.ts';
import { bindPath } from '../workspace/path-binding.ts';
import type { MappedCall, MappedServer } from './mapped-call.ts';
import { checkEdit, editChecked, editWhole } from './mapped-edit.ts';
import { type MappedState, notSupported, statMapped } from './mapped-file-facts.ts';
import { findMapped, listMapped } from './mapped-listing.ts';
import { checkProcess, MappedProcesses } from './mapped-process.ts';
import { readMappedPage, readMappedWhole } from './mapped-read.ts';
import { checkMappedSearch, searchMapped } from './mapped-search.ts';
import { writeMapped } from './mapped-write.ts';

type Args = Readonly<Record<string, unknown>>;

/** Arguments that are paths. They must lie in the workspace. */
const PATHS = ['path', 'cwd'] as const;
const DEFAULT_ACTIONS: Readonly<Partial<Record<Primitive, string>>> = { read: 'file', bash: 'run' };
const STOP_MS = 10_000;

/** Checks of the arguments before any call, by strategy. */
const CHECKS: Readonly<Partial<Record<Strategy, (args: Args) => void>>> = {
  'search-session': checkMappedSearch,
  'checked-edit': checkEdit,
  process: checkProcess,
};

type RunStrategy = (call: MappedCall, state: MappedState, processes: MappedProcesses) => Promise<ToolResult>;

const STRATEGIES: Readonly<Record<Strategy, RunStrategy>> = {
  'whole-file': readMappedWhole,
  'paged-file': readMappedPage,
  list: listMapped,
  'tree-find': findMapped,
  'search-session': searchMapped,
  info: statMapped,
  store: writeMapped,
  'read-modify-write': editWhole,
  'checked-edit': editChecked,
  process: (call, _state, processes) => processes.call(call),
};

/**
 * Creates a backend that serves the primitives through `inner` as `mapping` describes. `root` is the absolute, real
 * path of the workspace, which the backend must see under the same path. The tools of `inner` itself stay callable.
 * Throws the errors of the port, NOT_SUPPORTED, DENIED and TOOL_FAILED.
 */
export function createMappedBackend(backend: MappedServer): PrimitiveBackend {
  const { inner, mapping, root } = backend;
  const state: MappedState = { versions: new SeenVersions(), locks: new KeyedLocks() };
  const processes = new MappedProcesses();
  inner.holdWhile?.(() => processes.hasRunningSession);
  const lower = (primitive: Primitive, args: Args): LoweredPrimitive => lowerCall(backend, primitive, args).lowered;
  const endScope = async (scope: string): Promise<void> => {
    state.versions.drop(scope);
    await processes.endScope(scope, {
      ...backend,
      args: {},
      lowered: { tool: '', args: {}, semantics: { verb: 'execute' } },
      request: closingRequest(scope),
    });
    await inner.endScope?.(scope);
  };
  const callPrimitive = async (request: UpstreamCall): Promise<JsonDoc<ToolResult>> => {
    const primitive = primitiveOf(request.tool);
    const { args } = normalizeArguments(primitive, request.args.value);
    const { strategy, lowered } = lowerCall(backend, primitive, args);
    const pathHandles = request.pathHandles ?? new CallPathHandles([root]);
    try {
      // The backend gets the real path that the policy judged. It opens this path by name in its own sandbox.
      const realArgs = absoluteRealPaths(pathHandles, root, args);
      const call = { ...backend, request, args: realArgs, lowered: lower(primitive, realArgs) };
      const value = await whileInPlace(pathHandles, lowered.semantics.verb, () =>
        STRATEGIES[strategy](call, state, processes).catch(asResult),
      );
      return { text: JSON.stringify(value), value, exact: true };
    } finally {
      if (request.pathHandles === undefined) pathHandles.close();
    }
  };
  return {
    name: inner.name,
    start: (signal) => inner.start(signal),
    listTools: () => Promise.resolve(definitionsOf(mapping)),
    call: callPrimitive,
    health: () => inner.health(),
    info: () => inner.info(),
    // The primitives of a mapping never change. Changes of the tools of `inner` go to the listener of `inner`.
    onToolsChanged: () => undefined,
    stop: async () => {
      await Promise.allSettled(processes.scopes().map(endScope));
      await inner.stop();
    },
    endScope,
    serves: () => toolsByPrimitive(mapping),
    lower,
  };
}

/** Turns a failure that the model can correct into a result, as every backend does. */
function asResult(error: unknown): ToolResult {
  if (error instanceof TollgateError && error.code === 'TOOL_FAILED') return refusalResult(error.message, error.next);
  throw error;
}

function lowerCall(
  { inner, mapping, root }: MappedServer,
  primitive: Primitive,
  rawArgs: Args,
): { readonly strategy: Strategy; readonly lowered: LoweredPrimitive } {
  const { args } = normalizeArguments(primitive, rawArgs);
  checkArguments(primitive, args);
  const key = keyOf(primitive, args);
  const action = mapping.actions.get(key) ?? { missing: 'its mapping does not define this action' };
  if ('missing' in action)
    throw notSupported(`${inner.name} cannot do ${key.replace('.', ' action=')}: ${action.missing}`);
  const { strategy, tool, semantics } = action;
  CHECKS[strategy]?.(args);
  return { strategy, lowered: { tool, args: renderArguments(action, withAbsolutePaths(root, args)), semantics } };
}

function keyOf(primitive: Primitive, args: Args): string {
  const fallback = DEFAULT_ACTIONS[primitive];
  return fallback === undefined
    ? primitive
    : `${primitive}.${typeof args.action === 'string' ? args.action : fallback}`;
}

/** Returns the path arguments as real paths that the policy judged. Throws the errors of `bindPath`. */
function absoluteRealPaths(pathHandles: CallPathHandles, root: string, args: Args): Args {
  return mapPaths(args, (raw, name) => {
    // The policy judged the absolute path. The path as the caller wrote it must be valid too.
    bindPath(new PathHandle(locate([root], raw)), name);
    return bindPath(pathHandles.of(resolve(root, raw)), name).location.absolute;
  });
}

/** Makes the path arguments absolute. Does no I/O: symlinks are resolved when the call is made. */
function withAbsolutePaths(root: string, args: Args): Args {
  return mapPaths(args, (raw) => resolve(root, raw));
}

function mapPaths(args: Args, change: (raw: string, name: string) => string): Args {
  const changed: Record<string, unknown> = { ...args };
  for (const name of PATHS) {
    const raw = args[name];
    if (typeof raw === 'string') changed[name] = change(raw, name);
  }
  return changed;
}

function resolve(root: string, raw: string): string {
  try {
    return path.resolve(root, /^file:/i.test(raw) ? fileURLToPath(raw) : raw);
  } catch {
    // Not a local path. The call refuses it and says why.
    return path.resolve(root, raw);
  }
}

function primitiveOf(tool: string): Primitive {
  const found = PRIMITIVES.find((primitive) => primitive === tool);
  if (found === undefined) throw new TollgateError('UNKNOWN_TOOL');
  return found;
}

function toolsByPrimitive(
  mapping: Mapping,
): ReadonlyMap<Primitive, readonly { readonly tool: string; readonly semantics: Semantics }[]> {
  const byPrimitive = new Map<Primitive, Map<string, { tool: string; semantics: Semantics }>>();
  for (const [key, action] of mapping.actions) {
    if ('missing' in action) continue;
    const primitive = primitiveOf(key.split('.', 1)[0] ?? '');
    const tools = byPrimitive.get(primitive) ?? new Map<string, { tool: string; semantics: Semantics }>();
    byPrimitive.set(primitive, tools.set(action.tool, { tool: action.tool, semantics: action.semantics }));
  }
  return new Map([...byPrimitive].map(([primitive, tools]) => [primitive, [...tools.values()]]));
}

function definitionsOf(mapping: Mapping): readonly RawTool[] {
  return [...toolsByPrimitive(mapping).keys()].map((name) => ({
    name,
    inputSchema: { ...ARGUMENT_SCHEMAS.get(name) },
  }));
}

function closingRequest(scope: string): UpstreamCall {
  return {
    tool: '',
    args: { text: '{}', value: {}, exact: true },
    scope,
    signal: AbortSignal.timeout(STOP_MS),
    timeoutMs: STOP_MS,
    hardTimeoutMs: STOP_MS,
  };
}
