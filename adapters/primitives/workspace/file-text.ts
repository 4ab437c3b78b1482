/** Owns what bytes of a file are (text, kind, version) and how an action answers; refuses to show bytes as text that are none. */
import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ContentItem, ToolResult } from '../../../catalogs/tools/tool-definition.ts';

/** Text whose every byte survives a round trip, or why there is none. */
export type DecodedText =
  | { readonly text: string }
  | { readonly binary: true; readonly mime: string }
  | { readonly lossy: string };

/** Bytes looked at for NUL, as git does. */
const SNIFF_BYTES = 8192;
/** Up to this size a version is a hash of the content; above it, of size and modification time. */
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

/** Media type by the first bytes; names are never trusted for it. */
export function mimeOf(bytes: Buffer): string {
  const head = bytes.toString('hex', 0, 16);
  if (head.startsWith('52494646') && bytes.toString('latin1', 8, 12) === 'WEBP') return 'image/webp';
  return SIGNATURES.find(([signature]) => head.startsWith(signature))?.[1] ?? UNKNOWN;
}

/** Decodes UTF-8 with byte order mark and line ends kept. NUL near the start means binary; `lossy` holds U+FFFD for bad bytes. */
export function decodeText(bytes: Buffer): DecodedText {
  const mime = mimeOf(bytes);
  if (mime !== UNKNOWN || bytes.subarray(0, SNIFF_BYTES).includes(0)) return { binary: true, mime };
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { lossy: bytes.toString('utf8') };
  }
}

/** The version token of a file: short, the same for the same content up to 1 MiB, and different after any later write. */
export function versionOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 12);
}

/** The version token of a file too large to hash at every look, by size, time and inode. */
export function versionOfStat(stat: BigIntStats): string {
  const hash = createHash('sha256').update(`${stat.size}/${stat.mtimeNs}/${stat.ino}`);
  return `t${hash.digest('hex').slice(0, 12)}`;
}

/** True when versions of files of this size are hashes of their content. */
export function isHashed(size: number): boolean {
  return size <= HASH_BYTES;
}

/** At most `length` UTF-16 units of `text`, never half a character. */
export function headOf(text: string, length: number): string {
  return text.length <= length ? text : text.slice(0, length).replace(/[\ud800-\udbff]$/, '');
}

/** A name or path for one line of output: control characters would forge lines, so such names come as JSON. */
export function printableName(name: string): string {
  return /[\x00-\x1f\x7f\u2028\u2029]/.test(name) ? JSON.stringify(name) : name;
}

/** A result of text items; empty ones are left out unless nothing else is there. */
export function textResult(...texts: readonly (string | undefined)[]): ToolResult {
  const content: ContentItem[] = texts.flatMap((text) =>
    text === undefined || text === '' ? [] : [{ type: 'text', text }],
  );
  return { content: content.length > 0 ? content : [{ type: 'text', text: '' }], isError: false };
}

/** A refusal of a tool as its result: a line what, a line what next. */
export function refusalResult(what: string, next: string): ToolResult {
  return { content: [{ type: 'text', text: `${what}\n${next}` }], isError: true };
}

/** The failure of a tool, for throwing; the workspace turns it into a result with `isError`. */
export function toolFailure(detail: string, next: string): TollgateError {
  return new TollgateError('TOOL_FAILED', { detail, next });
}

/** Arguments that no schema could refuse. */
export function invalidArguments(detail: string, next: string): TollgateError {
  return new TollgateError('ARGS_INVALID', { detail, next });
}
