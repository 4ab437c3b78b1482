/** A file of a spill: written once, and read again only while it is the same object. */
import { closeSync, constants, fstatSync, openSync, readFileSync, writeSync } from 'node:fs';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** Where a text is kept, and which object that is. */
export interface KeptFile {
  readonly file: string;
  readonly object: string;
}

/** Writes a new file of mode 0600. Throws errors of the system, EEXIST for one that is there. */
export function keepFile(file: string, bytes: Buffer): KeptFile {
  const descriptor = openSync(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    for (let done = 0; done < bytes.length; ) done += writeSync(descriptor, bytes, done);
    return { file, object: objectOf(descriptor) };
  } finally {
    closeSync(descriptor);
  }
}

/** The text of a kept file; undefined when its name leads to another object by now, or to none. */
export function readKept({ file, object }: KeptFile): string | undefined {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, O_RDONLY | O_NOFOLLOW);
    return objectOf(descriptor) === object ? readFileSync(descriptor, 'utf8') : undefined;
  } catch {
    return undefined;
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

function objectOf(descriptor: number): string {
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return `${dev}:${ino}`;
}
