/** Owns what a backend tells about a file, and its version; refuses text whose bytes the backend has changed on the way. */
import { createHash } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { explain, type Locks, type Versions } from '../internal/desk.ts';
import { answer, failed, headOf, printable, versionOf } from '../internal/text.ts';
import { failure, find, shown, step, type Work } from './work.ts';

/** Longer text of a backend is no time. */
const MAX_TIME_CHARS = 100;

/** What the strategies of one backend share between calls. */
export interface Desk {
  readonly versions: Versions;
  readonly locks: Locks;
}

/** What the backend says of a path. `modified` is its own spelling. */
export interface Facts {
  readonly size: number;
  readonly directory: boolean;
  readonly modified: string;
  readonly permissions: string;
}

/** Asks for the facts of the call's path; undefined when there is nothing. */
export async function factsOf(work: Work): Promise<Facts | undefined> {
  const answered = await step(work, 'info', { path: work.args.path });
  if (answered.failed && find(work, 'absent', answered.text)) return undefined;
  const size = find(work, 'size', answered.text)?.value;
  if (answered.failed || size === undefined) throw failure(work, answered);
  return {
    size: Number(size),
    directory: find(work, 'directory', answered.text) !== undefined,
    modified: find(work, 'modified', answered.text)?.value ?? '',
    permissions: find(work, 'permissions', answered.text)?.value ?? '',
  };
}

/** As `factsOf`, where there must be a regular file. */
export async function fileFacts(work: Work): Promise<Facts> {
  const facts = await factsOf(work);
  if (!facts) throw explain({ code: 'ENOENT' }, pathOf(work));
  if (facts.directory) throw explain({ code: 'EISDIR' }, pathOf(work));
  return facts;
}

/**
 * The whole text of a file from a backend that keeps line ends. Throws NOT_SUPPORTED when the file is too large, binary, or holds
 * bytes that are not UTF-8: the backend replaces those without a word, and only the size betrays it.
 */
export async function wholeText(work: Work): Promise<string> {
  const { size } = await fileFacts(work);
  const path = JSON.stringify(pathOf(work));
  if (size > work.mapping.maxFileBytes)
    throw unsupported(
      `${path} has ${size} bytes; this backend can only hand over whole files of at most ${work.mapping.maxFileBytes}`,
    );
  const answered = await step(work, 'text', { path: work.args.path });
  if (answered.failed) throw failure(work, answered);
  if (answered.text.includes('\0')) throw unsupported(`${path} is binary, and this backend only hands over text`);
  if (Buffer.byteLength(answered.text) !== size || answered.text.includes('\uFFFD'))
    throw unsupported(`${path} is not UTF-8, or changed meanwhile; this backend would damage it`);
  return answered.text;
}

/** The file's present version: of its content where the backend hands it over unchanged, else of size and time. */
export async function presentVersion(work: Work): Promise<string> {
  if (work.mapping.steps.has('text')) return versionOf(Buffer.from(await wholeText(work)));
  return versionOfFacts(await fileFacts(work));
}

/** Version by size and time, as fine as the backend's clock. */
export function versionOfFacts(facts: Facts): string {
  return `t${createHash('sha256').update(`${facts.size}/${facts.modified}`).digest('hex').slice(0, 12)}`;
}

/** Refuses a version that is not the present one: the one given, else the one that this caller saw last. */
export function checkVersion(work: Work, desk: Desk, present: string): void {
  const given = work.args.version;
  const expected = typeof given === 'string' ? given : desk.versions.seen(work.call.scope, String(work.args.path));
  if (expected === undefined || expected === present) return;
  throw failed(
    `${JSON.stringify(pathOf(work))} has changed: its version is ${present}, not ${expected}.`,
    `Read it again: read path=${JSON.stringify(pathOf(work))}`,
  );
}

/** Remembers the version that the caller has now seen. */
export function remember(work: Work, desk: Desk, version: string): void {
  desk.versions.note(work.call.scope, String(work.args.path), version);
}

/** Carries out `read action="stat"`. */
export async function stat(work: Work, desk: Desk): Promise<ToolResult> {
  const facts = await factsOf(work);
  if (!facts) throw explain({ code: 'ENOENT' }, pathOf(work));
  const size = facts.directory ? [] : [`size: ${facts.size}`];
  const lines = [
    `path: ${printable(pathOf(work))}`,
    `kind: ${facts.directory ? 'directory' : 'file'}`,
    ...size,
    `mode: ${facts.permissions.padStart(4, '0')}`,
    `modified: ${isoTime(facts.modified)}`,
  ];
  if (facts.directory) return answer(lines.join('\n'));
  // Too large or not text: such a file has no version here, and stat still tells the rest.
  const version = await presentVersion(work).catch((error: unknown) => {
    if (error instanceof TollgateError && error.code === 'NOT_SUPPORTED') return undefined;
    throw error;
  });
  if (version !== undefined) remember(work, desk, version);
  return answer([...lines, ...(version === undefined ? [] : [`version: ${version}`])].join('\n'));
}

/** RFC 3339 where the backend's spelling can be read, else as it came. */
function isoTime(text: string): string {
  if (text.length > MAX_TIME_CHARS) return headOf(text, MAX_TIME_CHARS);
  const time = Date.parse(text.replace(/ \(.*\)$/, ''));
  return Number.isNaN(time) ? text : new Date(time).toISOString();
}

/** The call's path as the caller knows it. */
export function pathOf(work: Work): string {
  return shown(work, String(work.args.path ?? work.root));
}

/** NOT_SUPPORTED with what is missing. */
export function unsupported(detail: string, next?: string): TollgateError {
  return new TollgateError('NOT_SUPPORTED', { detail, ...(next === undefined ? {} : { next }) });
}
