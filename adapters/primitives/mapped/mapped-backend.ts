/** Owns the primitives served over another server by a mapping; refuses, before any call, what that server cannot do honestly. */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { normalizeArguments } from '../../../catalogs/primitives/argument-spellings.ts';
import {
  type Mapping,
  renderArguments,
  type ServedAction,
  type Strategy,
} from '../../../catalogs/primitives/primitive-mapping.ts';
import { ARGUMENT_SCHEMAS, checkArguments } from '../../../catalogs/primitives/primitive-schemas.ts';
import { CallPathHandles, PathHandle, whileInPlace } from '../../../catalogs/readers/path-handles.ts';
import { locate } from '../../../catalogs/readers/path-location.ts';
import type { RawTool, Semantics, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  type LoweredPrimitive,
  PRIMITIVES,
  type Primitive,
  type PrimitiveBackend,
  type ServerAdapter,
  type UpstreamCall,
} from '../../port.ts';
import type { JsonDoc } from '../../rpc/wire-message.ts';
import { KeyedLocks, SeenVersions } from '../workspace/action-context.ts';
import { refusalResult } from '../workspace/file-text.ts';
import { bindPath } from '../workspace/path-binding.ts';
import type { MappedCall } from './mapped-call.ts';
import { checkEdit, editChecked, editWhole } from './mapped-edit.ts';
import { type MappedState, statMapped } from './mapped-file-facts.ts';
import { findMapped, listMapped } from './mapped-listing.ts';
import { checkProcess, MappedProcesses } from './mapped-process.ts';
import { readMappedPage, readMappedWhole } from './mapped-read.ts';
import { checkMappedSearch, searchMapped } from './mapped-search.ts';
import { writeMapped } from './mapped-write.ts';

type Args = Readonly<Record<string, unknown>>;

/** Arguments that name paths, by which the workspace is bound. */
const PATHS = ['path', 'cwd'] as const;
const DEFAULT_ACTIONS: Readonly<Partial<Record<Primitive, string>>> = { read: 'file', bash: 'run' };
const STOP_MS = 10_000;

/** What is refused before any call, by strategy. */
const CHECKS: Readonly<Partial<Record<Strategy, (args: Args) => void>>> = {
  'search-session': checkMappedSearch,
  'checked-edit': checkEdit,
  process: checkProcess,
};

/**
 * Serves the primitives over `inner` as `mapping` says. `root` is the workspace, absolute and real, under the same path on the
 * backend. Tools of `inner` itself stay reachable through it. Errors: those of the port, NOT_SUPPORTED, DENIED and TOOL_FAILED.
 */
export function createMappedBackend({
  inner,
  mapping,
  root,
}: {
  readonly inner: ServerAdapter;
  readonly mapping: Mapping;
  readonly root: string;
}): PrimitiveBackend {
  const desk: MappedState = { versions: new SeenVersions(), locks: new KeyedLocks() };
  const processes = new MappedProcesses();
  inner.holdWhile?.(() => processes.any);
  const lower = (primitive: Primitive, args: Args): LoweredPrimitive =>
    lowerCall({ mapping, root, name: inner.name }, primitive, args);
  const endScope = async (scope: string): Promise<void> => {
    desk.versions.drop(scope);
    await processes.endScope(scope, {
      inner,
      mapping,
      root,
      args: {},
      lowered: { tool: '', args: {}, semantics: { verb: 'execute' } },
      call: closingCall(scope),
    });
    await inner.endScope?.(scope);
  };
  const call = async (given: UpstreamCall): Promise<JsonDoc<ToolResult>> => {
    const primitive = primitiveOf(given.tool);
    const { args } = normalizeArguments(primitive, given.args.value);
    const { semantics } = lower(primitive, args);
    const held = given.pathHandles ?? new CallPathHandles([root]);
    try {
      // The backend gets the real path that was judged, and opens it by this name in its own sandbox.
      const real = { ...args, ...realPaths(held, root, args) };
      const work: MappedCall = {
        inner,
        mapping,
        root,
        call: given,
        args: absolute(root, real),
        lowered: lower(primitive, real),
      };
      const by = { desk, processes, strategy: actionOf(mapping, primitive, args)?.strategy };
      const value = await whileInPlace(held, semantics.verb, () => carryOut(work, by).catch(asResult));
      return { text: JSON.stringify(value), value, exact: true };
    } finally {
      if (given.pathHandles === undefined) held.close();
    }
  };
  return {
    name: inner.name,
    start: (signal) => inner.start(signal),
    listTools: () => Promise.resolve(toolsOf(mapping)),
    call,
    health: () => inner.health(),
    info: () => inner.info(),
    // The primitives of a mapping never change, and the tools of `inner` are its own listener's business.
    onToolsChanged: () => undefined,
    stop: async () => {
      await Promise.allSettled(processes.scopes().map(endScope));
      await inner.stop();
    },
    endScope,
    serves: () => served(mapping),
    lower,
  };
}

/** A failure that the model can mend is a result, as it is on every backend. */
function asResult(error: unknown): ToolResult {
  if (error instanceof TollgateError && error.code === 'TOOL_FAILED') return refusalResult(error.message, error.next);
  throw error;
}

async function carryOut(
  work: MappedCall,
  by: { readonly desk: MappedState; readonly processes: MappedProcesses; readonly strategy: Strategy | undefined },
): Promise<ToolResult> {
  const { desk, processes, strategy } = by;
  switch (strategy) {
    case 'whole-file':
      return readMappedWhole(work, desk);
    case 'paged-file':
      return readMappedPage(work, desk);
    case 'list':
      return listMapped(work);
    case 'tree-find':
      return findMapped(work);
    case 'search-session':
      return searchMapped(work);
    case 'info':
      return statMapped(work, desk);
    case 'store':
      return writeMapped(work, desk);
    case 'read-modify-write':
      return editWhole(work, desk);
    case 'checked-edit':
      return editChecked(work, desk);
    case 'process':
      return processes.call(work);
    default:
      throw new TollgateError('INTERNAL', { cause: new Error('an action without a strategy was lowered') });
  }
}

function lowerCall(
  at: { readonly mapping: Mapping; readonly root: string; readonly name: string },
  primitive: Primitive,
  given: Args,
): LoweredPrimitive {
  const { args } = normalizeArguments(primitive, given);
  checkArguments(primitive, args);
  const key = keyOf(primitive, args);
  const action = at.mapping.actions.get(key);
  const missing =
    action === undefined ? 'it does not know this action' : 'missing' in action ? action.missing : undefined;
  if (action === undefined || 'missing' in action) {
    throw new TollgateError('NOT_SUPPORTED', {
      detail: `${at.name} cannot do ${key.replace('.', ' action=')}: ${missing}`,
    });
  }
  CHECKS[action.strategy]?.(args);
  return { tool: action.tool, args: renderArguments(action, absolute(at.root, args)), semantics: action.semantics };
}

function actionOf(mapping: Mapping, primitive: Primitive, args: Args): ServedAction | undefined {
  const action = mapping.actions.get(keyOf(primitive, args));
  return action === undefined || 'missing' in action ? undefined : action;
}

function keyOf(primitive: Primitive, args: Args): string {
  const fallback = DEFAULT_ACTIONS[primitive];
  return fallback === undefined
    ? primitive
    : `${primitive}.${typeof args.action === 'string' ? args.action : fallback}`;
}

/** The path arguments as they were judged. Throws what `bindPath` throws. */
function realPaths(held: CallPathHandles, root: string, args: Args): Args {
  const bound = PATHS.flatMap((name) => {
    const raw = args[name];
    if (typeof raw !== 'string') return [];
    // The policy judged the path as the backend spells it; the caller's own spelling must be a plain path too.
    bindPath(new PathHandle(locate([root], raw)), name);
    return [[name, bindPath(held.of(resolve(root, raw)), name).location.absolute] as const];
  });
  return Object.fromEntries(bound);
}

/** Paths as the backend needs them. Pure: symlinks are judged when the call is made. */
function absolute(root: string, args: Args): Args {
  const bound = PATHS.flatMap((name) =>
    typeof args[name] === 'string' ? [[name, resolve(root, args[name])] as const] : [],
  );
  return { ...args, ...Object.fromEntries(bound) };
}

function resolve(root: string, raw: string): string {
  try {
    return path.resolve(root, /^file:/i.test(raw) ? fileURLToPath(raw) : raw);
  } catch {
    // No local path: the call refuses it with the reason.
    return path.resolve(root, raw);
  }
}

function primitiveOf(tool: string): Primitive {
  const found = PRIMITIVES.find((primitive) => primitive === tool);
  if (found === undefined) throw new TollgateError('UNKNOWN_TOOL');
  return found;
}

function served(
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

function toolsOf(mapping: Mapping): readonly RawTool[] {
  return [...served(mapping).keys()].map((name) => ({ name, inputSchema: { ...ARGUMENT_SCHEMAS.get(name) } }));
}

function closingCall(scope: string): UpstreamCall {
  return {
    tool: '',
    args: { text: '{}', value: {}, exact: true },
    scope,
    signal: AbortSignal.timeout(STOP_MS),
    timeoutMs: STOP_MS,
    hardTimeoutMs: STOP_MS,
  };
}
