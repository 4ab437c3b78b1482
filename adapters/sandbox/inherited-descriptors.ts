/** Owns what a child inherits beside its own pipes: nothing; descriptors that our own parent left open would be a way out. */

import type { StdioOptions } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';

const O_CLOEXEC = 0o2000000;

/**
 * Descriptors that our parent left open for us and that every child would get. Node marks all of its own as closed at the
 * start of a child, so those without the mark are foreign. Read once: more cannot come.
 */
let foreign: readonly number[] | undefined;

function foreignDescriptors(): readonly number[] {
  foreign ??= readFds().filter((fd) => fd > 2 && !isClosedAtStart(fd));
  return foreign;
}

function readFds(): readonly number[] {
  try {
    return readdirSync('/proc/self/fdinfo').map(Number);
  } catch {
    // Without /proc (macOS) they cannot be told apart.
    return [];
  }
}

function isClosedAtStart(fd: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1] ?? '0';
    return (Number.parseInt(flags, 8) & O_CLOEXEC) !== 0;
  } catch {
    // It was the one that read the folder.
    return true;
  }
}

/** Starts a child whose foreign descriptors all lead to /dev/null. `stdio` is what it shall have, from 0 on. */
export function withoutInheritedDescriptors<T>(
  stdio: readonly ('pipe' | 'ignore' | number)[],
  start: (stdio: StdioOptions) => T,
): T {
  const fds = foreignDescriptors().filter((fd) => fd >= stdio.length);
  if (fds.length === 0) return start([...stdio]);
  const nothing = openSync('/dev/null', 'r+');
  try {
    const all = Array.from(
      { length: Math.max(...fds) + 1 },
      (_, fd) => stdio[fd] ?? (fds.includes(fd) ? nothing : 'ignore'),
    );
    return start(all);
  } finally {
    closeSync(nothing);
  }
}
