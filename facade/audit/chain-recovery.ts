/**
 * Cuts the torn end that a killed process or a power failure leaves in a chain file. It never touches a file whose
 * writer is alive.
 */
import { createHash } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import type { RecoveredEntry } from './audit-entry.ts';
import { type ChainPart, isWriterAlive, listParts } from './chain-lines.ts';

/** The file that gets the cut end. */
export const TORN = '.torn';

/**
 * Cuts half-written ends of dead processes' files into `<file>.torn`. The hash of what is cut is recorded first, so a
 * crash in between repeats the work and loses nothing. Throws what node:fs throws, and what `record` throws.
 */
export function recoverTorn(folder: string, record: (entry: RecoveredEntry) => void): void {
  for (const part of listParts(folder)) {
    if (endsWhole(part.path) || isWriterAlive(part)) continue;
    const end = tornEnd(part);
    if (end.bytes.length === 0) continue;
    writeFileSync(`${part.path}${TORN}.${process.pid}`, end.bytes, { mode: 0o600, flush: true });
    renameSync(`${part.path}${TORN}.${process.pid}`, `${part.path}${TORN}`);
    record({
      type: 'recovered',
      file: part.name,
      bytes: end.bytes.length,
      digest: createHash('sha256').update(end.bytes).digest('hex'),
    });
    truncateSync(part.path, end.offset);
  }
}

function endsWhole(path: string): boolean {
  const fd = openSync(path, 'r');
  try {
    const { size } = fstatSync(fd);
    const last = Buffer.alloc(1);
    return size === 0 || (readSync(fd, last, 0, 1, size - 1) === 1 && last[0] === 10);
  } finally {
    closeSync(fd);
  }
}

function tornEnd(part: ChainPart): { readonly offset: number; readonly bytes: Buffer } {
  const text = readFileSync(part.path);
  const offset = text.lastIndexOf(10) + 1;
  return { offset, bytes: text.subarray(offset) };
}
