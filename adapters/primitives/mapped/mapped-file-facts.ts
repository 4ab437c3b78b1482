/** Owns what a backend tells about a file, and its version; refuses text whose bytes the backend has changed on the way. */
import { createHash } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError, type KeyedLocks, type SeenVersions } from '../workspace/action-context.ts';
import { headOf, printableName, textResult, toolFailure, versionOf } from '../workspace/file-text.ts';
import { backendFailure, callMappingStep, type MappedCall, matchMappingText, workspacePath } from './mapped-call.ts';

/** Longer text of a backend is no time. */
const MAX_TIME_CHARS = 100;

/** What the strategies of one backend share between calls. */
export interface MappedState {
  readonly versions: SeenVersions;
  readonly locks: KeyedLocks;
}

/** What the backend says of a path. `modified` is its own spelling. */
export interface MappedFileFacts {
  readonly size: number;
  readonly directory: boolean;
  readonly modified: string;
  readonly permissions: string;
}

/** Asks for the facts of the call's path; undefined when there is nothing. */
export async function readFileFacts(work: MappedCall): Promise<MappedFileFacts | undefined> {
  const answered = await callMappingStep(work, 'info', { path: work.args.path });
  if (answered.failed && matchMappingText(work, 'absent', answered.text)) return undefined;
  const size = matchMappingText(work, 'size', answered.text)?.value;
  if (answered.failed || size === undefined) throw backendFailure(work, answered);
  return {
    size: Number(size),
    directory: matchMappingText(work, 'directory', answered.text) !== undefined,
    modified: matchMappingText(work, 'modified', answered.text)?.value ?? '',
    permissions: matchMappingText(work, 'permissions', answered.text)?.value ?? '',
  };
}

/** As `factsOf`, where there must be a regular file. */
export async function regularFileFacts(work: MappedCall): Promise<MappedFileFacts> {
  const facts = await readFileFacts(work);
  if (!facts) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(work));
  if (facts.directory) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(work));
  return facts;
}

/**
 * The whole text of a file from a backend that keeps line ends. Throws NOT_SUPPORTED when the file is too large, binary, or holds
 * bytes that are not UTF-8: the backend replaces those without a word, and only the size betrays it.
 */
export async function readWholeText(work: MappedCall): Promise<string> {
  const { size } = await regularFileFacts(work);
  const path = JSON.stringify(shownPathOf(work));
  if (size > work.mapping.maxFileBytes)
    throw notSupported(
      `${path} has ${size} bytes; this backend can only hand over whole files of at most ${work.mapping.maxFileBytes}`,
    );
  const answered = await callMappingStep(work, 'text', { path: work.args.path });
  if (answered.failed) throw backendFailure(work, answered);
  if (answered.text.includes('\0')) throw notSupported(`${path} is binary, and this backend only hands over text`);
  if (Buffer.byteLength(answered.text) !== size || answered.text.includes('\uFFFD'))
    throw notSupported(`${path} is not UTF-8, or changed meanwhile; this backend would damage it`);
  return answered.text;
}

/** The file's present version: of its content where the backend hands it over unchanged, else of size and time. */
export async function backendFileVersion(work: MappedCall): Promise<string> {
  if (work.mapping.steps.has('text')) return versionOf(Buffer.from(await readWholeText(work)));
  return versionOfFacts(await regularFileFacts(work));
}

/** Version by size and time, as fine as the backend's clock. */
export function versionOfFacts(facts: MappedFileFacts): string {
  return `t${createHash('sha256').update(`${facts.size}/${facts.modified}`).digest('hex').slice(0, 12)}`;
}

/** Refuses a version that is not the present one: the one given, else the one that this caller saw last. */
export function checkVersion(work: MappedCall, desk: MappedState, present: string): void {
  const given = work.args.version;
  const expected = typeof given === 'string' ? given : desk.versions.seen(work.call.scope, String(work.args.path));
  if (expected === undefined || expected === present) return;
  throw toolFailure(
    `${JSON.stringify(shownPathOf(work))} has changed: its version is ${present}, not ${expected}.`,
    `Read it again: read path=${JSON.stringify(shownPathOf(work))}`,
  );
}

/** Remembers the version that the caller has now seen. */
export function rememberVersion(work: MappedCall, desk: MappedState, version: string): void {
  desk.versions.note(work.call.scope, String(work.args.path), version);
}

/** Carries out `read action="stat"`. */
export async function statMapped(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  const facts = await readFileFacts(work);
  if (!facts) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(work));
  const size = facts.directory ? [] : [`size: ${facts.size}`];
  const lines = [
    `path: ${printableName(shownPathOf(work))}`,
    `kind: ${facts.directory ? 'directory' : 'file'}`,
    ...size,
    `mode: ${facts.permissions.padStart(4, '0')}`,
    `modified: ${isoTime(facts.modified)}`,
  ];
  if (facts.directory) return textResult(lines.join('\n'));
  // Too large or not text: such a file has no version here, and stat still tells the rest.
  const version = await backendFileVersion(work).catch((error: unknown) => {
    if (error instanceof TollgateError && error.code === 'NOT_SUPPORTED') return undefined;
    throw error;
  });
  if (version !== undefined) rememberVersion(work, desk, version);
  return textResult([...lines, ...(version === undefined ? [] : [`version: ${version}`])].join('\n'));
}

/** RFC 3339 where the backend's spelling can be read, else as it came. */
function isoTime(text: string): string {
  if (text.length > MAX_TIME_CHARS) return headOf(text, MAX_TIME_CHARS);
  const time = Date.parse(text.replace(/ \(.*\)$/, ''));
  return Number.isNaN(time) ? text : new Date(time).toISOString();
}

/** The call's path as the caller knows it. */
export function shownPathOf(work: MappedCall): string {
  return workspacePath(work, String(work.args.path ?? work.root));
}

/** NOT_SUPPORTED with what is missing. */
export function notSupported(detail: string, next?: string): TollgateError {
  return new TollgateError('NOT_SUPPORTED', { detail, ...(next === undefined ? {} : { next }) });
}
