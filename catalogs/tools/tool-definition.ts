/** The types of what servers offer: the raw definition as it came, and what a call of it does. */

/** A tool's definition exactly as a server listed it (MCP 2025-11-25, server/tools). Unknown keys are kept. */
export interface RawTool {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly outputSchema?: Readonly<Record<string, unknown>>;
  readonly annotations?: Readonly<Record<string, unknown>>;
  readonly _meta?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

/** Whether a tool runs as a task of its server (MCP 2025-11-25, basic/utilities/tasks). */
export type TaskSupport = 'optional' | 'required';

/** Returns what a definition says about tasks; undefined if the tool does not run as a task. */
export function taskSupportOf(tool: RawTool | undefined): TaskSupport | undefined {
  const { taskSupport } = (tool?.execution ?? {}) as { readonly taskSupport?: unknown };
  return taskSupport === 'optional' || taskSupport === 'required' ? taskSupport : undefined;
}

/** What a call does, from harmless to dangerous. A tool that no one has classified counts as `destructive`. */
export type Verb = 'read' | 'write' | 'destructive' | 'execute';

/**
 * What the arguments of a tool mean. Argument names are top-level keys of the original schema. Annotations of servers
 * make it less strict only if the owner allows that, because they are untrusted (MCP specification, tool annotations).
 */
export interface Semantics {
  readonly verb: Verb;
  /** Arguments that are file paths. The facade resolves them to the workspace and shows them to the policy. */
  readonly paths?: readonly string[];
  /** Arguments that are URLs. */
  readonly urls?: readonly string[];
  /** The argument that is a shell command. */
  readonly command?: string;
  /**
   * The verb by the value of one argument, for a tool that does several things: `{ argument: 'action', verbs: { kill:
   * 'execute' } }`. Booleans are written `true` and `false`.
   */
  readonly byArgument?: { readonly argument: string; readonly verbs: Readonly<Record<string, Verb>> };
}

/** An MCP `tools/call` result as a parsed value. Unknown keys and unknown content types are kept. */
export interface ToolResult {
  readonly content?: readonly ContentItem[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
  readonly _meta?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

/** One content item; `text` items carry `text`, media items `data` and `mimeType`. */
export interface ContentItem {
  readonly type: string;
  readonly text?: string;
  readonly [key: string]: unknown;
}
