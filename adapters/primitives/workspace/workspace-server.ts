/**
 * The internal workspace server: read, write, edit and bash, in this process. Paths must lie in its root or in a folder
 * of another workspace that is open to the call.
 */
import { realpathSync, statSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { normalizeArguments } from '../../../catalogs/primitives/argument-spellings.ts';
import { ARGUMENT_SCHEMAS, checkArguments } from '../../../catalogs/primitives/primitive-schemas.ts';
import { PRIMITIVE_SEMANTICS } from '../../../catalogs/primitives/primitive-semantics.ts';
import { CallPathHandles } from '../../../catalogs/readers/path-handles.ts';
import type { RawTool, Semantics, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  type Health,
  type HealthState,
  type LoweredPrimitive,
  PRIMITIVES,
  type Primitive,
  type PrimitiveBackend,
  type ServerInfo,
  type UpstreamCall,
} from '../../port.ts';
import { abortSignalOf } from '../../rpc/cancellation.ts';
import type { JsonDoc } from '../../rpc/wire-message.ts';
import { bashAction } from '../shell/bash-action.ts';
import { directShell, type StartCommand } from '../shell/shell-process.ts';
import { ShellSessions } from '../shell/shell-sessions.ts';
import { type ActionContext, KeyedLocks, SeenVersions, StoredObjects } from './action-context.ts';
import { localDeviceOf } from './file-snapshot.ts';
import { refusalResult } from './file-text.ts';
import { readAction, readAtOnce } from './read-action.ts';
import { editAction, writeAction } from './write-actions.ts';

/** Options of the workspace server. */
export interface WorkspaceOptions {
  /** The folder of the workspace. */
  readonly root: string;
  /** Milliseconds after which an unused session is ended. Default 30 minutes. */
  readonly idleMs?: number;
  /** Starts commands. Default: with all rights of the user. */
  readonly shell?: StartCommand;
}

const IDLE_MS = 30 * 60_000;
const INFO: ServerInfo = { name: 'tollgate-workspace', version: '1', protocolVersion: '2025-11-25' };

const DESCRIPTIONS: Readonly<Record<Primitive, string>> = {
  read:
    'Read from the workspace. Without action: the exact text of a file, 2000 lines or 30000 bytes at a time; a note ' +
    'names the call for the rest. Files that .gitignore names are left out of lists unless hidden is true.',
  write:
    'Write a whole text file in the workspace, or append to one. Missing parent directories are created. An existing ' +
    'file is replaced only if you have read its current version. For small changes, use edit.',
  edit:
    'Replace text in a file of the workspace. Line ends, byte order mark and mode are kept. The result shows the ' +
    'changed lines. If nothing matches, it shows the most similar text, and nothing is changed.',
  bash:
    'Run a shell command in the workspace and get its output. The first line shows a non-zero exit code. A command ' +
    'that takes longer than timeout_ms continues as a session. For servers and interactive programs: start, then ' +
    'send, poll, kill. Background processes that run leaves are ended. An empty or forbidden name, such as .vscode, ' +
    'may be closed by the owner and not exist.',
};

/** Creates the workspace server. Its `start` throws INIT_FAILED if the root is not a folder. */
export function createWorkspace(options: WorkspaceOptions): PrimitiveBackend {
  return new Workspace(options);
}

const TOOLS: readonly RawTool[] = PRIMITIVES.map((name) => ({
  name,
  description: DESCRIPTIONS[name],
  inputSchema: { ...ARGUMENT_SCHEMAS.get(name) },
}));

/** What exists while the server is started. */
type Started = Pick<ToolContext, 'root' | 'localDevice' | 'sessions'>;

type ToolContext = ActionContext & { readonly sessions: ShellSessions };

class Workspace implements PrimitiveBackend {
  readonly name = 'workspace';
  readonly #configured: string;
  readonly #versions = new SeenVersions();
  readonly #locks = new KeyedLocks();
  readonly #stored = new StoredObjects();
  readonly #idleMs: number;
  readonly #shell: StartCommand;
  /** Present while the server is started. */
  #started: Started | undefined;
  #state: HealthState = 'idle';

  constructor(options: WorkspaceOptions) {
    this.#configured = options.root;
    this.#idleMs = options.idleMs ?? IDLE_MS;
    this.#shell = options.shell ?? directShell(String(process.pid));
  }

  async start(): Promise<ServerInfo> {
    this.#open();
    return INFO;
  }

  #open(): Started {
    if (this.#started !== undefined) return this.#started;
    try {
      const root = realpathSync.native(this.#configured);
      if (!statSync(root).isDirectory()) throw new Error('not a directory');
      this.#started = {
        root,
        localDevice: localDeviceOf(root),
        sessions: new ShellSessions(this.#idleMs, this.#shell),
      };
    } catch (cause) {
      this.#state = 'unavailable';
      throw new TollgateError('INIT_FAILED', {
        detail: 'The workspace is not a folder that can be used.',
        next: 'Set `workspace` in tollgate.yaml to a folder that exists.',
        cause,
      });
    }
    this.#state = 'healthy';
    return this.#started;
  }

  listTools(): Promise<readonly RawTool[]> {
    return Promise.resolve(TOOLS);
  }

  serves(): ReadonlyMap<Primitive, readonly { readonly tool: string; readonly semantics: Semantics }[]> {
    return new Map([...PRIMITIVE_SEMANTICS].map(([tool, semantics]) => [tool, [{ tool, semantics }]]));
  }

  lower(primitive: Primitive, args: Readonly<Record<string, unknown>>): LoweredPrimitive {
    const semantics = PRIMITIVE_SEMANTICS.get(primitive);
    if (semantics === undefined) throw new TollgateError('NOT_SUPPORTED');
    const named = normalizeArguments(primitive, args).args;
    checkArguments(primitive, named);
    return { tool: primitive, args: named, semantics };
  }

  async call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    const started = this.#open();
    checkArguments(call.tool, call.args.value);
    const pathHandles = call.pathHandles ?? new CallPathHandles([started.root]);
    const shared = { versions: this.#versions, locks: this.#locks, stored: this.#stored };
    const context = { ...started, ...shared, pathHandles, call };
    let value: ToolResult;
    try {
      const small = call.tool === 'read' ? readAtOnce(context, argumentsOf(call)) : undefined;
      value = small ?? (await runInTime(context));
    } catch (error) {
      if (!(error instanceof TollgateError) || error.code !== 'TOOL_FAILED') throw error;
      value = refusalResult(error.message, error.next);
    } finally {
      if (call.pathHandles === undefined) pathHandles.close();
    }
    return { text: JSON.stringify(value), value, exact: true };
  }

  health(): Health {
    return {
      state: this.#state,
      restarts: 0,
      badLines: 0,
      ...(this.#state === 'unavailable' ? { reason: 'the workspace is not a folder that can be used' } : {}),
    };
  }

  info(): ServerInfo | undefined {
    return this.#started && INFO;
  }

  /** The four tools never change. */
  onToolsChanged(): void {}

  async stop(): Promise<void> {
    const sessions = this.#started?.sessions;
    this.#started = undefined;
    this.#state = 'idle';
    await sessions?.stop();
  }

  killNow(): void {
    this.#started?.sessions.killNow();
  }

  async endScope(scope: string): Promise<void> {
    this.#versions.drop(scope);
    await this.#started?.sessions.endScope(scope);
  }
}

/** Returns the arguments. `checkArguments` has validated them against the schema that matches their type. */
function argumentsOf<Args>({ args }: UpstreamCall): Args {
  const value: unknown = args.value;
  return value as Args;
}

/** Commands have their own timeout. All other calls must end within the timeout of the facade. */
async function runInTime(context: Omit<ToolContext, 'signal'>): Promise<ToolResult> {
  const { call } = context;
  const timeLimit = call.tool === 'bash' ? undefined : AbortSignal.timeout(call.timeoutMs);
  const cancelled = abortSignalOf(call.signal);
  const signal = timeLimit === undefined ? cancelled : AbortSignal.any([cancelled, timeLimit]);
  try {
    signal.throwIfAborted();
    return await runTool({ ...context, signal });
  } catch (error) {
    if (call.signal.aborted) throw new TollgateError('CANCELLED', { cause: error });
    if (timeLimit?.aborted === true) throw new TollgateError('TOOL_TIMEOUT', { cause: error });
    throw error;
  }
}

function runTool(context: ToolContext): Promise<ToolResult> {
  const { call } = context;
  switch (call.tool) {
    case 'read':
      return readAction(context, argumentsOf(call));
    case 'write':
      return writeAction(context, argumentsOf(call));
    case 'edit':
      return editAction(context, argumentsOf(call));
    default:
      return bashAction(context, argumentsOf(call));
  }
}
