/** Decodes files (text, media type, version), and builds the results and errors of actions. */
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ContentItem, ToolResult } from '../../../catalogs/tools/tool-definition.ts';

/** Text that encodes to the same bytes again, or the reason why there is none. */
export type DecodedText =
  | { readonly text: string }
  | { readonly binary: true; readonly mime: string }
  | { readonly lossy: string };

/** Bytes that are searched for NUL, as git does. */
const SNIFF_BYTES = 8192;
/** Up to this size, a version is a hash of the content. Above it, a hash of size, modification time and inode. */
const HASH_BYTES = 1024 * 1024;

const SIGNATURES: readonly (readonly [string, string])[] = [
  ['89504e470d0a1a0a', 'image/png'],
  ['ffd8ff', 'image/jpeg'],
  ['47494638', 'image/gif'],
  ['25504446', 'application/pdf'],
  ['504b0304', 'application/zip'],
  ['1f8b', 'application/gzip'],
  ['7f454c46', 'application/x-executable'],
  ['fffe', 'text/plain; charset=utf-16le'],
  ['feff', 'text/plain; charset=utf-16be'],
];

const UNKNOWN = 'application/octet-stream';

/** Returns the media type by the first bytes. File names are not trusted. */
export function mimeOf(bytes: Buffer): string {
  const head = bytes.toString('hex', 0, 16);
  if (head.startsWith('52494646') && bytes.toString('latin1', 8, 12) === 'WEBP') return 'image/webp';
  return SIGNATURES.find(([signature]) => head.startsWith(signature))?.[1] ?? UNKNOWN;
}

/**
 * Decodes UTF-8 and keeps byte order mark and line ends. NUL near the start means binary. `lossy` has U+FFFD for
 * invalid bytes.
 */
export function decodeText(bytes: Buffer): DecodedText {
  const mime = mimeOf(bytes);
  if (mime !== UNKNOWN || bytes.subarray(0, SNIFF_BYTES).includes(0)) return { binary: true, mime };
  return isUtf8(bytes) ? { text: bytes.toString() } : { lossy: bytes.toString() };
}

/** Returns the version of a file of at most 1 MiB, a hash of its content. */
export function versionOf(bytes: Buffer): string {
  return hash('sha256', bytes).slice(0, 12);
}

/** Returns the version of a larger file, a hash of size, modification time and inode. */
export function versionOfStat(stat: BigIntStats): string {
  return `t${hash('sha256', `${stat.size}/${stat.mtimeNs}/${stat.ino}`).slice(0, 12)}`;
}

/** Returns the version of a file with these bytes. */
export function versionOfFile(bytes: Buffer, stat: BigIntStats): string {
  return isHashed(bytes.length) ? versionOf(bytes) : versionOfStat(stat);
}

/** Returns true if the version of a file of this size is a hash of its content. */
export function isHashed(size: number): boolean {
  return size <= HASH_BYTES;
}

/** Returns at most `length` UTF-16 units of a text, never half a character. */
export function headOf(text: string, length: number): string {
  return text.length <= length ? text : text.slice(0, length).replace(/[\ud800-\udbff]$/, '');
}

/** Returns a name for one line of output. A name with control characters could forge lines, so it is quoted as JSON. */
export function printableName(name: string): string {
  return /[\x00-\x1f\x7f\u2028\u2029]/.test(name) ? JSON.stringify(name) : name;
}

/** Returns a result with the texts that are not empty, or with one empty text. */
export function textResult(...texts: readonly (string | undefined)[]): ToolResult {
  const content: ContentItem[] = texts.flatMap((text) =>
    text === undefined || text === '' ? [] : [{ type: 'text', text }],
  );
  return { content: content.length > 0 ? content : [{ type: 'text', text: '' }], isError: false };
}

/** Returns an error result: one line says what happened, one line what to do. */
export function refusalResult(what: string, next: string): ToolResult {
  return { content: [{ type: 'text', text: `${what}\n${next}` }], isError: true };
}

/** Creates a TOOL_FAILED error. The backend turns it into a result with `isError`. */
export function toolFailure(detail: string, next: string): TollgateError {
  return new TollgateError('TOOL_FAILED', { detail, next });
}

/** Creates an ARGS_INVALID error for arguments that the schema cannot refuse. */
export function invalidArguments(detail: string, next: string): TollgateError {
  return new TollgateError('ARGS_INVALID', { detail, next });
}
