/** Files that are stored as they are or compressed by gzip: those of an archive are. */
import fs from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { LRUCache } from 'lru-cache';
import { unlessMissing } from '../../catalogs/readers/missing-files.ts';

/** The end of the name of a compressed file. */
export const GZIP = '.gz';
/** A chain file is much smaller, unless someone made one to fill the memory. */
const MAX_BYTES = 1024 * 1024 * 1024;
/** Files that are kept in memory, because lines are read from them one by one. */
const KEPT = new LRUCache<string, Buffer>({ max: 2 });

/** Returns the content of the compressed file next to a path; undefined if there is none. Throws what zlib throws. */
export function readCompressed(path: string): Buffer | undefined {
  const file = path.endsWith(GZIP) ? path : `${path}${GZIP}`;
  const stat = fs.statSync(file, { throwIfNoEntry: false });
  if (stat === undefined) return undefined;
  const key = `${file} ${stat.ino} ${stat.size} ${stat.mtimeMs}`;
  const kept = KEPT.get(key);
  if (kept !== undefined) return kept;
  const bytes = unlessMissing(() => fs.readFileSync(file));
  if (bytes === undefined) return undefined;
  const content = gunzipSync(bytes, { maxOutputLength: MAX_BYTES });
  KEPT.set(key, content);
  return content;
}

/** Writes a compressed copy with mode 0600, complete on the disk before it has its name. */
export function writeCompressed(from: string, target: string): void {
  const draft = `${target}${GZIP}.${process.pid}`;
  fs.writeFileSync(draft, gzipSync(fs.readFileSync(from)), { mode: 0o600, flush: true });
  fs.renameSync(draft, `${target}${GZIP}`);
}
