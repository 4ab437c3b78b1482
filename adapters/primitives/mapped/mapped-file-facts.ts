/** Reads size, kind and version of a file from a backend, and its text if the backend returns it unchanged. */
import { createHash } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError, type KeyedLocks, type SeenVersions } from '../workspace/action-context.ts';
import { headOf, printableName, textResult, toolFailure, versionOf } from '../workspace/file-text.ts';
import {
  backendFailure,
  callMappingStep,
  type MappedCall,
  matchMappingText,
  requireSuccess,
  workspacePath,
} from './mapped-call.ts';

/** A longer text is not a time. */
const MAX_TIME_CHARS = 100;

/** State that the strategies of one backend share between calls. */
export interface MappedState {
  readonly versions: SeenVersions;
  readonly locks: KeyedLocks;
}

/** What the backend reports about a path. `modified` is in the format of the backend. */
export interface MappedFileFacts {
  readonly size: number;
  readonly directory: boolean;
  readonly modified: string;
  readonly permissions: string;
}

/** Reads the facts of the path of the call. Returns undefined if the path does not exist. */
export async function readFileFacts(call: MappedCall): Promise<MappedFileFacts | undefined> {
  const answer = await callMappingStep(call, 'info', { path: call.args.path });
  if (answer.failed && matchMappingText(call, 'absent', answer.text)) return undefined;
  const size = matchMappingText(call, 'size', answer.text)?.value;
  if (answer.failed || size === undefined) throw backendFailure(call, answer);
  return {
    size: Number(size),
    directory: matchMappingText(call, 'directory', answer.text) !== undefined,
    modified: matchMappingText(call, 'modified', answer.text)?.value ?? '',
    permissions: matchMappingText(call, 'permissions', answer.text)?.value ?? '',
  };
}

/** Reads the facts of a file. Throws TOOL_FAILED if it does not exist or is a directory. */
export async function regularFileFacts(call: MappedCall): Promise<MappedFileFacts> {
  const facts = await readFileFacts(call);
  if (!facts) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(call));
  if (facts.directory) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(call));
  return facts;
}

/**
 * Reads the whole text of a file from a backend that keeps line ends. Throws NOT_SUPPORTED if the file is too large,
 * binary, or not UTF-8: the backend silently replaces such bytes, and only the size reveals it.
 */
export async function readWholeText(call: MappedCall): Promise<string> {
  const { size } = await regularFileFacts(call);
  const path = quotedPathOf(call);
  if (size > call.mapping.maxFileBytes)
    throw notSupported(
      `${path} has ${size} bytes. This backend returns only whole files of at most ${call.mapping.maxFileBytes} bytes`,
    );
  const text = await requireSuccess(call, callMappingStep(call, 'text', { path: call.args.path }));
  if (text.includes('\0')) throw notSupported(`${path} is binary, and this backend returns only text`);
  if (Buffer.byteLength(text) !== size || text.includes('\uFFFD'))
    throw notSupported(`${path} is not UTF-8 or has just changed, and this backend would damage it`);
  return text;
}

/**
 * Returns the current version of a file: a hash of its content if the backend returns it unchanged, else of size and
 * time.
 */
export async function backendFileVersion(call: MappedCall): Promise<string> {
  if (call.mapping.steps.has('text')) return versionOf(Buffer.from(await readWholeText(call)));
  return versionOfFacts(await regularFileFacts(call));
}

/** Returns a version made of size and time. It is as precise as the times that the backend reports. */
export function versionOfFacts(facts: MappedFileFacts): string {
  return `t${createHash('sha256').update(`${facts.size}/${facts.modified}`).digest('hex').slice(0, 12)}`;
}

/** Throws TOOL_FAILED unless the given version, or else the version that the caller saw last, is the current one. */
export function checkVersion(call: MappedCall, state: MappedState, current: string): void {
  const { version } = call.args;
  const expected =
    typeof version === 'string' ? version : state.versions.lastSeen(call.request.scope, String(call.args.path));
  if (expected === undefined || expected === current) return;
  throw toolFailure(
    `${quotedPathOf(call)} has changed: its version is ${current}, not ${expected}.`,
    `Read it again: read path=${quotedPathOf(call)}`,
  );
}

/** Records the version that the caller has now seen. */
export function rememberVersion(call: MappedCall, state: MappedState, version: string): void {
  state.versions.record(call.request.scope, String(call.args.path), version);
}

/** Runs `read action="stat"`. */
export async function statMapped(call: MappedCall, state: MappedState): Promise<ToolResult> {
  const facts = await readFileFacts(call);
  if (!facts) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(call));
  const size = facts.directory ? [] : [`size: ${facts.size}`];
  const lines = [
    `path: ${printableName(shownPathOf(call))}`,
    `kind: ${facts.directory ? 'directory' : 'file'}`,
    ...size,
    `mode: ${facts.permissions.padStart(4, '0')}`,
    `modified: ${isoTime(facts.modified)}`,
  ];
  if (facts.directory) return textResult(lines.join('\n'));
  // A file that is too large or not text has no version. stat reports everything else.
  const version = await backendFileVersion(call).catch((error: unknown) => {
    if (error instanceof TollgateError && error.code === 'NOT_SUPPORTED') return undefined;
    throw error;
  });
  if (version !== undefined) rememberVersion(call, state, version);
  return textResult([...lines, ...(version === undefined ? [] : [`version: ${version}`])].join('\n'));
}

/** Converts a time of the backend to RFC 3339. Returns the text unchanged if it cannot be parsed. */
function isoTime(text: string): string {
  if (text.length > MAX_TIME_CHARS) return headOf(text, MAX_TIME_CHARS);
  const time = Date.parse(text.replace(/ \(.*\)$/, ''));
  return Number.isNaN(time) ? text : new Date(time).toISOString();
}

/** Returns the path of the call as the caller knows it. */
export function shownPathOf(call: MappedCall): string {
  return workspacePath(call, String(call.args.path ?? call.root));
}

/** Returns the path of the call in quotes, for messages. */
export function quotedPathOf(call: MappedCall): string {
  return JSON.stringify(shownPathOf(call));
}

/** Creates a NOT_SUPPORTED error. */
export function notSupported(detail: string, next?: string): TollgateError {
  return new TollgateError('NOT_SUPPORTED', { detail, ...(next !== undefined && { next }) });
}
