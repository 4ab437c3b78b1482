/** Owns one call on its way through a mapping: asking the backend's tools and reading their texts; refuses to judge them. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Mapping, renderArguments } from '../../../catalogs/primitives/primitive-mapping.ts';
import type { ContentItem } from '../../../catalogs/tools/tool-definition.ts';
import type { LoweredPrimitive, ServerAdapter, UpstreamCall } from '../../port.ts';
import { fileSystemError } from '../workspace/action-context.ts';

/** Errors of the system that have words of ours. */
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

/** Characters of a failure that are looked at; 300 are shown. */
const MAX_LINE = 10_000;

/** What every strategy gets. `args` are the primitive's own, with `path` and `cwd` absolute. */
export interface MappedCall {
  readonly inner: ServerAdapter;
  readonly mapping: Mapping;
  /** Absolute workspace root on the backend. */
  readonly root: string;
  readonly call: UpstreamCall;
  readonly args: Readonly<Record<string, unknown>>;
  readonly lowered: LoweredPrimitive;
}

/** A tool's answer as text; `failed` only says what the backend itself said. */
export interface BackendAnswer {
  readonly text: string;
  readonly failed: boolean;
}

/** Calls one tool of the backend with the caller's signal and timeouts. Answers that are not text throw NOT_SUPPORTED. */
export async function callBackendTool(
  work: MappedCall,
  tool: string,
  args: Readonly<Record<string, unknown>>,
): Promise<BackendAnswer> {
  const doc = { text: JSON.stringify(args), value: args, exact: true };
  const { onProgress: _unused, ...call } = work.call;
  const { value } = await work.inner.call({ ...call, tool, args: doc });
  const items = (value.content ?? []).filter((item) => !isNote(work.mapping, item));
  if (items.some((item) => item.type !== 'text')) {
    throw new TollgateError('NOT_SUPPORTED', { detail: `${work.inner.name} does not give this file as text` });
  }
  return { text: items.map((item) => item.text ?? '').join('\n'), failed: value.isError === true };
}

/** Calls the tool of a role of the mapping. */
export function callMappingStep(
  work: MappedCall,
  role: string,
  values: Readonly<Record<string, unknown>>,
): Promise<BackendAnswer> {
  const found = work.mapping.steps.get(role);
  if (!found)
    throw new TollgateError('INTERNAL', { cause: new Error(`mapping ${work.mapping.id} has no step ${role}`) });
  return callBackendTool(work, found.tool, renderArguments(found, values));
}

/** Calls the main tool with exactly the arguments that the policy saw. */
export function callMainTool(work: MappedCall): Promise<BackendAnswer> {
  return callBackendTool(work, work.lowered.tool, work.lowered.args);
}

/** First match of a text of the mapping, with its named groups; undefined when the mapping has no such text, and for lines too long to be matched. */
export function matchMappingText(
  work: Pick<MappedCall, 'mapping'>,
  name: string,
  text: string,
): Readonly<Record<string, string>> | undefined {
  try {
    const match = work.mapping.texts.get(name)?.exec(text);
    return match ? { ...match.groups } : undefined;
  } catch {
    return undefined; // V8 gives up with a RangeError on a line of some hundred thousand characters.
  }
}

/** Path as the caller knows it: relative to the workspace. */
export function workspacePath(work: Pick<MappedCall, 'root'>, path: string): string {
  if (path === work.root) return '.';
  return path.startsWith(`${work.root}/`) ? path.slice(work.root.length + 1) : path;
}

/** Turns a failed answer into the one error; host paths in the backend's text are cut to the workspace. */
export function backendFailure(work: MappedCall, answer: BackendAnswer): TollgateError {
  const path = workspacePath(work, String(work.args.path ?? work.args.cwd ?? '.'));
  if (matchMappingText(work, 'outside', answer.text))
    return new TollgateError('DENIED', { detail: `${work.inner.name} refuses ${path}: it is outside its folders` });
  const code =
    matchMappingText(work, 'systemError', answer.text)?.code ??
    (matchMappingText(work, 'absent', answer.text) ? 'ENOENT' : '');
  if (SYSTEM_ERRORS.has(code)) return fileSystemError({ code }, path);
  return new TollgateError('TOOL_FAILED', { detail: `${work.inner.name}: ${publicLine(work, answer.text)}` });
}

/** Folder of a path that is relative to the workspace. */
export function parentFolder(path: string): string {
  const cut = path.lastIndexOf('/');
  return cut > 0 ? path.slice(0, cut) : '.';
}

function publicLine(work: MappedCall, text: string): string {
  const line = (text.split('\n', 1)[0] ?? '').slice(0, MAX_LINE);
  return line
    .replaceAll(`${work.root}/`, '')
    .replaceAll(work.root, '.')
    .replace(/\/(?:[^\s'"/]+\/)+/g, '…/')
    .slice(0, 300);
}

function isNote(mapping: Mapping, item: ContentItem): boolean {
  return item.type === 'text' && (mapping.texts.get('unknownArguments')?.test(item.text ?? '') ?? false);
}
