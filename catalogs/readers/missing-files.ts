/** Reads of files that may be missing or unreadable. */

/** Returns the result of `read`; undefined if it throws ENOENT. Throws every other error. */
export function unlessMissing<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw thrown;
  }
}

/** Returns the result of `read`; undefined if it throws. */
export function unlessUnreadable<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
