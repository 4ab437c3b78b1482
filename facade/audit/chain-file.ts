/** A file that is only appended to. A record is in it completely or not at all. */
import fs from 'node:fs';

/** The functions of node:fs that are used; tests insert faults. */
export type AuditFs = Pick<
  typeof fs,
  'openSync' | 'writeSync' | 'ftruncateSync' | 'fstatSync' | 'statSync' | 'unlinkSync' | 'fdatasync' | 'close'
>;

/** A file of the chain. */
export interface ChainFile {
  readonly path: string;
  /** Bytes of whole records. */
  readonly size: number;
  /** Appends all bytes, or throws and leaves none. */
  write(bytes: Buffer): void;
  /**
   * False if the file was removed or replaced, so that what is written now would not be found again. Checked again
   * after ten milliseconds: if someone removes the file, the records of that time are lost at most. `now`: ms.
   */
  isInPlace(now: number): boolean;
  sync(): Promise<void>;
  close(): Promise<void>;
  /** Removes a file that got no record. */
  discard(): void;
}

/** How long the file is assumed to be in its place, ms. A check costs as much as a write. */
const LOOK_MS = 10;

/** Creates the file (mode 0600); undefined if it exists. Throws what node:fs throws. */
export function createChainFile(path: string, files: AuditFs = fs): ChainFile | undefined {
  const fd = openNew(path, files);
  if (fd === undefined) return undefined;
  const { ino, dev } = files.fstatSync(fd);
  let size = 0;
  let isTorn = false;
  let seenAt = Number.NaN;

  const append = (bytes: Buffer): void => {
    let done = 0;
    while (done < bytes.length) {
      // A disk that fills up takes a part first, and says so only by the count.
      const taken = files.writeSync(fd, bytes, done, bytes.length - done);
      if (taken === 0) throw new Error('write took no byte');
      done += taken;
    }
  };
  const cutBack = (): void => {
    files.ftruncateSync(fd, size);
    isTorn = false;
  };
  const settle = (work: typeof files.fdatasync): Promise<void> =>
    new Promise((resolve, reject) => work(fd, (error) => (error === null ? resolve() : reject(error))));

  return {
    path,
    get size() {
      return size;
    },
    write: (bytes) => {
      if (isTorn) cutBack();
      isTorn = true;
      try {
        append(bytes);
      } catch (error) {
        tryQuietly(cutBack);
        throw error;
      }
      isTorn = false;
      size += bytes.length;
    },
    isInPlace: (now) => {
      if (Math.abs(now - seenAt) < LOOK_MS) return true;
      const found = files.statSync(path, { throwIfNoEntry: false });
      const isThere = found?.ino === ino && found.dev === dev;
      seenAt = isThere ? now : Number.NaN;
      return isThere;
    },
    sync: () => settle(files.fdatasync),
    close: () => settle(files.close as typeof files.fdatasync),
    discard: () => {
      tryQuietly(() => files.unlinkSync(path));
      files.close(fd, () => undefined);
    },
  };
}

function openNew(path: string, files: AuditFs): number | undefined {
  try {
    return files.openSync(path, 'ax', 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
    throw error;
  }
}

/** Cleans up after an error that is thrown anyway. What fails here is done before the next write. */
function tryQuietly(work: () => void): void {
  try {
    work();
  } catch {
    // The error that led here is the one to report.
  }
}
