/**
 * Keeps parsed YAML for the next start, because parsing ten thousand rules takes seconds. A parsed text depends on the
 * text alone: what is checked against the disk, the environment and other files is checked at each load.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { readPrivate, writePrivate } from '../../secrets/private-file.ts';
import { VERSION } from '../../serve/version.ts';

/** An agent that can write here could change rules, so it is a folder that is closed to agents. */
let folder: string | undefined;

/** Texts by the file that will keep them. */
const unwritten = new Map<string, string>();
let timer: NodeJS.Timeout | undefined;

/** A process that is refused writes nothing, and a start is not delayed. */
export const WRITE_AFTER_MS = 3_000;

/** While `work` runs, keeps what this process parses in a folder of the accepted configuration (`acceptedFolder`). */
export async function keepParsedFiles<T>(accepted: string, work: () => Promise<T>): Promise<T> {
  folder = path.join(accepted, 'parsed');
  try {
    return await work();
  } finally {
    folder = undefined;
    clearTimeout(timer);
    timer = undefined;
    unwritten.clear();
  }
}

/**
 * Returns `parse(text)`, or the same value from an earlier process. There is one file for each `name`. It names the
 * hash of the text, and only its owner may read and write it; any other file is ignored. A value that JSON cannot
 * represent exactly is not kept.
 */
export function parseOnce<T>(name: string, text: string, parse: (text: string) => T): T {
  if (folder === undefined) return parse(text);
  const file = path.join(folder, `${sha256(name).slice(0, 32)}.json`);
  const hash = sha256(`${VERSION}\n${text}`);
  const kept = readKept(file, hash);
  if (kept !== undefined) return kept as T;
  const parsed = parse(text);
  keep(file, hash, parsed);
  return parsed;
}

function readKept(file: string, hash: string): unknown {
  try {
    const kept = readPrivate(file);
    const end = hash.length * 2;
    if (kept === undefined || !kept.startsWith(hash)) return undefined;
    const json = kept.slice(end);
    return sha256(json) === kept.slice(hash.length, end) ? JSON.parse(json) : undefined;
  } catch {
    return undefined;
  }
}

function keep(file: string, hash: string, parsed: unknown): void {
  const json = JSON.stringify(parsed);
  if (!isDeepStrictEqual(JSON.parse(json), parsed)) return;
  unwritten.set(file, hash + sha256(json) + json);
  timer ??= setTimeout(write, WRITE_AFTER_MS).unref();
}

function write(): void {
  timer = undefined;
  try {
    for (const [file, text] of unwritten) writePrivate(file, text);
  } catch {
    // On a disk that is full or read-only, the next start parses again.
  }
  unwritten.clear();
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
