/** Writes a tar archive (ustar, POSIX.1-1988) with gzip. Tollgate never reads one. */
import { createReadStream, createWriteStream, statSync } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';

/** A file of the archive: a text, or the content of a file on the disk that does not change. */
export type ArchiveMember =
  | { readonly name: string; readonly text: string }
  | { readonly name: string; readonly file: string };

/** docs/verify-audit.py reads no member that is larger, and a size has 33 bits in the header. Bytes. */
export const MAX_MEMBER_BYTES = 2 ** 32 - 1;
const BLOCK_BYTES = 512;

/**
 * Writes an archive to a new file with mode 0600. `seconds`: the time of its files, since 1970. Rejects with what
 * node:fs throws, also if the file exists.
 */
export function writeArchive(path: string, members: readonly ArchiveMember[], seconds: number): Promise<void> {
  return pipeline(
    Readable.from(blocksOf(members, seconds)),
    createGzip(),
    createWriteStream(path, { flags: 'wx', mode: 0o600 }),
  );
}

async function* blocksOf(members: readonly ArchiveMember[], seconds: number): AsyncGenerator<Buffer> {
  for (const member of members) {
    const size = 'text' in member ? Buffer.byteLength(member.text) : statSync(member.file).size;
    yield headerOf(member.name, size, seconds);
    if ('text' in member) yield Buffer.from(member.text);
    else for await (const chunk of createReadStream(member.file)) yield chunk as Buffer;
    yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

/** Returns the header of a regular file. `name`: ASCII, at most 100 characters. */
function headerOf(name: string, size: number, seconds: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, digits: number): string => `${value.toString(8).padStart(digits, '0')}\0`;
  const put = (text: string, at: number): void => void header.write(text, at, 'latin1');
  put(name, 0);
  put(octal(0o600, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(seconds, 11), 136);
  put(' '.repeat(8), 148);
  put('0', 156);
  put('ustar\x0000', 257);
  // The checksum is computed with spaces in its place.
  put(
    `${octal(
      header.reduce((sum, byte) => sum + byte, 0),
      6,
    )} `,
    148,
  );
  return header;
}
