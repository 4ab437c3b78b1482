/** Finds chain files and reads them line by line, as bytes. It holds only one line in memory. */
import { closeSync, fstatSync, openSync, readdirSync, readSync } from 'node:fs';
import path, { join } from 'node:path';
import { unlessMissing } from '../../catalogs/readers/missing-files.ts';
import { isAlive, isRunning } from '../state/process-mark.ts';
import { parseChainFileName, parseRecord } from './audit-chain.ts';
import { GZIP, readCompressed } from './compressed-file.ts';

/** A file of a chain. */
export interface ChainPart {
  readonly name: string;
  readonly path: string;
  readonly chain: string;
  readonly pid: number;
  readonly part: number;
}

/**
 * A line without its newline. `whole` is false for an end without newline, and for a line that is longer than any
 * record.
 */
export interface ChainLine {
  readonly offset: number;
  readonly bytes: Buffer;
  readonly whole: boolean;
}

const CHUNK_BYTES = 256 * 1024;
const MAX_LINE_BYTES = 1024 * 1024;

/**
 * Returns the chain files of a folder: chains by start, parts in order. A missing folder has none. Files of an archive
 * are compressed, and have the names of their content.
 */
export function listParts(folder: string): ChainPart[] {
  const parts: ChainPart[] = [];
  const files = new Set(namesIn(folder));
  for (const file of files) {
    const name = file.endsWith(GZIP) ? file.slice(0, -GZIP.length) : file;
    const parsed = name !== file && files.has(name) ? undefined : parseChainFileName(name);
    if (parsed !== undefined) parts.push({ name, path: join(folder, file), ...parsed });
  }
  return parts.sort((a, b) => (a.chain === b.chain ? a.part - b.part : a.chain < b.chain ? -1 : 1));
}

/**
 * Returns the chain files of some logs. Those of several logs have their paths as names, because two logs can have a
 * chain of the same name.
 */
export function listPartsOf(logs: readonly string[]): ChainPart[] {
  if (logs.length === 1) return listParts(logs[0] ?? '');
  return logs.flatMap((log) => listParts(log).map((part) => ({ ...part, name: join(log, part.name) })));
}

/** Groups files by their chains, in the order of both. */
export function groupByChain(parts: readonly ChainPart[]): Iterable<readonly ChainPart[]> {
  const chains = new Map<string, ChainPart[]>();
  for (const part of parts) {
    const chain = chains.get(part.chain);
    if (chain === undefined) chains.set(part.chain, [part]);
    else chain.push(part);
  }
  return chains.values();
}

/** Returns the names in a folder; none if it is missing. Throws what node:fs throws. */
export function namesIn(folder: string): string[] {
  return unlessMissing(() => readdirSync(folder)) ?? [];
}

/** Reads the lines from a byte offset to the current size of the file. */
export function* readLines(path: string, from = 0): Generator<ChainLine> {
  if (path.endsWith(GZIP)) {
    yield* compressedLines(path);
    return;
  }
  const fd = openSync(path, 'r');
  try {
    const { size } = fstatSync(fd);
    let rest: Buffer = Buffer.alloc(0);
    let offset = from;
    for (let at = from; at < size; ) {
      const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - at));
      const read = readSync(fd, chunk, 0, chunk.length, at);
      if (read === 0) break;
      at += read;
      rest = Buffer.concat([rest, chunk.subarray(0, read)]);
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        yield { offset, bytes: rest.subarray(0, end), whole: true };
        offset += end + 1;
        rest = rest.subarray(end + 1);
      }
      if (rest.length > MAX_LINE_BYTES) break;
    }
    if (rest.length > 0) yield { offset, bytes: rest, whole: false };
  } finally {
    closeSync(fd);
  }
}

/** A file that cannot be decompressed has one line, which is not whole. */
function* compressedLines(path: string): Generator<ChainLine> {
  let content: Buffer | undefined;
  try {
    content = readCompressed(path) ?? Buffer.alloc(0);
  } catch {
    yield { offset: 0, bytes: Buffer.alloc(0), whole: false };
  }
  if (content !== undefined) yield* linesIn(content);
}

function* linesIn(bytes: Buffer): Generator<ChainLine> {
  let offset = 0;
  for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, offset)) {
    yield { offset, bytes: bytes.subarray(offset, end), whole: true };
    offset = end + 1;
  }
  if (offset < bytes.length) yield { offset, bytes: bytes.subarray(offset), whole: false };
}

/** Reads one line at its place; undefined if the file was removed or is shorter now. */
export function readLineAt(path: string, offset: number, length: number): Buffer | undefined {
  const fd = unlessMissing(() => openSync(path, 'r'));
  if (fd === undefined) return readCompressed(path)?.subarray(offset, offset + length);
  try {
    const bytes = Buffer.allocUnsafe(length);
    return readSync(fd, bytes, 0, length, offset) === length ? bytes : undefined;
  } finally {
    closeSync(fd);
  }
}

/** Returns the last line that ends before a byte offset, without its newline; undefined if there is none. */
export function readLastLine(path: string, end: number): Buffer | undefined {
  for (let length = LAST_LINE_BYTES; ; length *= 16) {
    const from = Math.max(0, end - length);
    const bytes = readLineAt(path, from, end - from);
    const start = bytes?.lastIndexOf(10, -2) ?? -1;
    if (bytes === undefined || bytes.length < 2) return undefined;
    if (start >= 0 || from === 0) return bytes.subarray(start + 1, -1);
    if (length > MAX_LINE_BYTES) return undefined;
  }
}

/** More than most records have. */
const LAST_LINE_BYTES = 4096;

/**
 * Returns true while the process that writes this file runs. The first record tells it from a later process with the
 * same pid.
 */
export function isWriterAlive(part: ChainPart): boolean {
  const { process, born = '' } = writerOf(part.path);
  return process === undefined ? isRunning({ pid: part.pid, born }) : isAlive(path.dirname(part.path), process);
}

/**
 * Returns nothing for a file that is torn in its first record. Then only the pid is known, and the writer may be taken
 * for alive too long.
 */
function writerOf(file: string): { readonly process?: string; readonly born?: string } {
  for (const line of readLines(file)) {
    const { process, born } = (parseRecord(line.bytes) ?? {}) as { process?: unknown; born?: unknown };
    return { ...(typeof process === 'string' && { process }), ...(typeof born === 'string' && { born }) };
  }
  return {};
}
