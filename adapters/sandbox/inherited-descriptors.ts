/**
 * Starts children without the descriptors that Tollgate's own parent left open: they would be a way out of a sandbox.
 */
import type { StdioOptions } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';

const O_CLOEXEC = 0o2000000;

/**
 * Descriptors from our parent that every child would inherit. Node opens its own descriptors with O_CLOEXEC, so those
 * without it are foreign. Read once: no others can appear later.
 */
let foreign: readonly number[] | undefined;

function foreignDescriptors(): readonly number[] {
  foreign ??= readFds().filter((fd) => fd > 2 && !isClosedOnExec(fd));
  return foreign;
}

function readFds(): readonly number[] {
  // Without /proc (macOS), foreign descriptors cannot be recognized.
  return (unlessUnreadable(() => readdirSync('/proc/self/fdinfo')) ?? []).map(Number);
}

function isClosedOnExec(fd: number): boolean {
  const info = unlessUnreadable(() => readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'));
  // Undefined: this was the descriptor of the folder that was just read.
  if (info === undefined) return true;
  return (Number.parseInt(/^flags:\s*([0-7]+)/m.exec(info)?.[1] ?? '0', 8) & O_CLOEXEC) !== 0;
}

/**
 * Starts a child whose foreign descriptors all lead to /dev/null. `stdio` lists the child's own descriptors, from 0 on.
 */
export function withoutInheritedDescriptors<T>(
  stdio: readonly ('pipe' | 'ignore' | number)[],
  start: (stdio: StdioOptions) => T,
): T {
  const fds = foreignDescriptors().filter((fd) => fd >= stdio.length);
  if (fds.length === 0) return start([...stdio]);
  const devNull = openSync('/dev/null', 'r+');
  try {
    const all = Array.from(
      { length: Math.max(...fds) + 1 },
      (_, fd) => stdio[fd] ?? (fds.includes(fd) ? devNull : 'ignore'),
    );
    return start(all);
  } finally {
    closeSync(devNull);
  }
}
