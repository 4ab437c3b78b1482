/** Reads small text files, and refuses devices, pipes and large files, which could block a start. */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';

/** The text of a file, or the reason why it cannot be read. The reason names no folder. */
export type FileText = { readonly ok: true; readonly text: string } | { readonly ok: false; readonly reason: string };

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EACCES: 'it may not be read',
  EISDIR: 'it is a folder',
  ENOTDIR: 'there is no such file',
  ELOOP: 'its links form a circle',
};

/** Reads at most `maxBytes` of UTF-8, without a byte order mark. Never throws and never blocks on a pipe. */
export function readText(file: string, maxBytes: number): FileText {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
    const status = fstatSync(descriptor);
    if (!status.isFile())
      return { ok: false, reason: status.isDirectory() ? 'it is a folder' : 'it is not a plain file' };
    if (status.size > maxBytes) return { ok: false, reason: `it is larger than ${maxBytes} bytes` };
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(descriptor));
    return { ok: true, text };
  } catch (thrown) {
    if (thrown instanceof TypeError) return { ok: false, reason: 'it is not UTF-8 text' };
    const { code = '' } = thrown as NodeJS.ErrnoException;
    return { ok: false, reason: REASONS[code] ?? `it cannot be read (${code})` };
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** Returns the path with every link on its way resolved, even if its end does not exist yet. */
export function realPath(file: string): string {
  const missing: string[] = [];
  for (let existing = file; ; existing = path.dirname(existing)) {
    try {
      return path.join(realpathSync(existing), ...missing);
    } catch {
      // A missing path is not a link, so its parent decides where it will be.
      if (path.dirname(existing) === existing) return file;
      missing.unshift(path.basename(existing));
    }
  }
}
