/** One call through a mapping: calls the tools of the backend and matches the texts that they return. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Mapping, renderArguments } from '../../../catalogs/primitives/primitive-mapping.ts';
import type { ContentItem } from '../../../catalogs/tools/tool-definition.ts';
import type { LoweredPrimitive, ServerAdapter, UpstreamCall } from '../../port.ts';
import { fileSystemError } from '../workspace/action-context.ts';

/** System errors for which Tollgate has its own messages. */
const SYSTEM_ERRORS: ReadonlySet<string> = new Set([
  'ENOENT',
  'ENOTDIR',
  'EISDIR',
  'EACCES',
  'EPERM',
  'EROFS',
  'ENOSPC',
  'EDQUOT',
  'EFBIG',
  'EEXIST',
]);

/** Characters of a failure that are processed. At most 300 are shown. */
const MAX_LINE = 10_000;

/** A server that serves primitives by a mapping. */
export interface MappedServer {
  readonly inner: ServerAdapter;
  readonly mapping: Mapping;
  /** Absolute root of the workspace, also on the server. */
  readonly root: string;
}

/** The input of every strategy. `args` are the arguments of the primitive, with absolute `path` and `cwd`. */
export interface MappedCall extends MappedServer {
  /** The call of the facade. */
  readonly request: UpstreamCall;
  readonly args: Readonly<Record<string, unknown>>;
  readonly lowered: LoweredPrimitive;
}

/** The text of a tool result. `failed` is the `isError` of the backend. */
export interface BackendAnswer {
  readonly text: string;
  readonly failed: boolean;
}

/**
 * Calls one tool of the backend, with the signal and timeouts of the caller. Throws NOT_SUPPORTED if the result is not
 * text.
 */
export async function callBackendTool(
  call: MappedCall,
  tool: string,
  args: Readonly<Record<string, unknown>>,
): Promise<BackendAnswer> {
  const doc = { text: JSON.stringify(args), value: args, exact: true };
  const { onProgress: _unused, ...request } = call.request;
  const { value } = await call.inner.call({ ...request, tool, args: doc });
  const items = (value.content ?? []).filter((item) => !isArgumentWarning(call.mapping, item));
  if (items.some((item) => item.type !== 'text')) {
    throw new TollgateError('NOT_SUPPORTED', { detail: `${call.inner.name} does not return this file as text` });
  }
  return { text: items.map((item) => item.text ?? '').join('\n'), failed: value.isError === true };
}

/** Calls the tool that the mapping defines for a role. */
export function callMappingStep(
  call: MappedCall,
  role: string,
  values: Readonly<Record<string, unknown>>,
): Promise<BackendAnswer> {
  const step = call.mapping.steps.get(role);
  if (!step)
    throw new TollgateError('INTERNAL', { cause: new Error(`mapping ${call.mapping.id} has no step ${role}`) });
  return callBackendTool(call, step.tool, renderArguments(step, values));
}

/** Calls the main tool with exactly the arguments that the policy evaluated. */
export function callMainTool(call: MappedCall): Promise<BackendAnswer> {
  return callBackendTool(call, call.lowered.tool, call.lowered.args);
}

/**
 * Matches a text against a pattern of the mapping and returns the named groups. Returns undefined if it does not match,
 * if the mapping has no such pattern, or if a line is too long for the regular expression engine.
 */
export function matchMappingText(
  call: Pick<MappedCall, 'mapping'>,
  name: string,
  text: string,
): Readonly<Record<string, string>> | undefined {
  try {
    const match = call.mapping.texts.get(name)?.exec(text);
    return match ? { ...match.groups } : undefined;
  } catch {
    return undefined; // V8 throws a RangeError for lines of some hundred thousand characters.
  }
}

/** Returns a path relative to the workspace, as the caller knows it. */
export function workspacePath(call: Pick<MappedCall, 'root'>, path: string): string {
  if (path === call.root) return '.';
  return path.startsWith(`${call.root}/`) ? path.slice(call.root.length + 1) : path;
}

/** Returns the text of a result. Throws the error of a failed one. */
export async function requireSuccess(call: MappedCall, result: Promise<BackendAnswer>): Promise<string> {
  const answer = await result;
  if (answer.failed) throw backendFailure(call, answer);
  return answer.text;
}

/** Splits a text into its header and the rest. Returns undefined if it does not start with a header of the backend. */
export function splitHeader(
  call: MappedCall,
  text: string,
): { readonly header: Readonly<Record<string, string>>; readonly rest: string } | undefined {
  const gap = text.indexOf('\n\n');
  const header = matchMappingText(call, 'header', text.slice(0, Math.max(0, gap)));
  return header && { header, rest: text.slice(gap + 2) };
}

/** Converts a failed result to an error. Absolute paths in the text are replaced, so that no host path is disclosed. */
export function backendFailure(call: MappedCall, answer: BackendAnswer): TollgateError {
  const path = workspacePath(call, String(call.args.path ?? call.args.cwd ?? '.'));
  if (matchMappingText(call, 'outside', answer.text))
    return new TollgateError('DENIED', {
      detail: `${call.inner.name} refuses ${path}: it is outside the folders that this server may use`,
    });
  const code =
    matchMappingText(call, 'systemError', answer.text)?.code ??
    (matchMappingText(call, 'absent', answer.text) ? 'ENOENT' : '');
  if (SYSTEM_ERRORS.has(code)) return fileSystemError({ code }, path);
  return new TollgateError('TOOL_FAILED', { detail: `${call.inner.name}: ${publicLine(call, answer.text)}` });
}

function publicLine(call: MappedCall, text: string): string {
  const line = (text.split('\n', 1)[0] ?? '').slice(0, MAX_LINE);
  return line
    .replaceAll(`${call.root}/`, '')
    .replaceAll(call.root, '.')
    .replace(/\/(?:[^\s'"/]+\/)+/g, '…/')
    .slice(0, 300);
}

/** True for a warning of the backend about unknown arguments. */
function isArgumentWarning(mapping: Mapping, item: ContentItem): boolean {
  return item.type === 'text' && (mapping.texts.get('unknownArguments')?.test(item.text ?? '') ?? false);
}
