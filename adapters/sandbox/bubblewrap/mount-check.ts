/**
 * Compares the mounts of a sandbox with its plan before anything runs in it. bubblewrap resolves every path again, and
 * a running program may have swapped folders since the plan was made.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';

/** A line of /proc/PID/mountinfo (proc_pid_mountinfo(5)). */
export interface MountLine {
  readonly id: string;
  readonly parent: string;
  /** The file system, as major:minor. */
  readonly device: string;
  /** The mounted folder or file in its file system. */
  readonly root: string;
  /** The mountpoint, as the process sees it. */
  readonly at: string;
  readonly isReadOnly: boolean;
}

/** Milliseconds between two checks, plus this many times the duration of the last check. */
const CHECK_MS = 1;
const CHECK_SHARE = 20;
/** Mountpoints that every sandbox has. */
const STANDARD = /^\/(?:etc|proc|dev)\//;

/** Parses mountinfo. */
export function parseMounts(text: string): readonly MountLine[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [id = '', parent = '', device = '', root = '', at = '', options = ''] = line.split(' ');
      return {
        id,
        parent,
        device,
        root: unescape(root),
        at: unescape(at),
        isReadOnly: options.split(',').includes('ro'),
      };
    });
}

/**
 * Waits until a sandbox is mounted completely, and returns its mounts. `first` is its first process. Returns none when
 * `signal` fires.
 */
export async function waitForMounts(
  first: number,
  host: readonly MountLine[],
  signal: AbortSignal,
): Promise<readonly MountLine[]> {
  const root = host.findLast(({ at }) => at === '/');
  while (!signal.aborted) {
    const start = performance.now();
    const text = textOf(first);
    if (isComplete(text, root)) return parseMounts(text);
    await sleep(CHECK_MS + CHECK_SHARE * (performance.now() - start));
  }
  return [];
}

/** Returns the mounts of this process. */
export function ownMounts(): readonly MountLine[] {
  return parseMounts(textOf('self'));
}

/**
 * Returns the paths at which another mount namespace, such as that of a sandbox, has a mount. Reads each visible
 * namespace once.
 */
export function mountedElsewhere(paths: readonly string[]): ReadonlySet<string> {
  const wanted = new Set(paths);
  const found = new Set<string>();
  const seen = new Set([undefined, namespaceOf('self')]);
  // Without /proc, no sandbox has mounts.
  for (const pid of wanted.size === 0 || !existsSync('/proc')
    ? []
    : readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const namespace = namespaceOf(pid);
    if (seen.has(namespace)) continue;
    seen.add(namespace);
    for (const { at } of parseMounts(textOf(pid))) if (wanted.has(at)) found.add(at);
  }
  return found;
}

/** Undefined if the process has ended or belongs to another user. */
function namespaceOf(pid: string): string | undefined {
  return unlessUnreadable(() => readlinkSync(`/proc/${pid}/ns/mnt`));
}

/** Returns '' if the process has ended. */
function textOf(pid: number | string): string {
  return unlessUnreadable(() => readFileSync(`/proc/${pid}/mountinfo`, 'utf8')) ?? '';
}

/**
 * bubblewrap mounts everything below /newroot of its own file system. In its last step, this folder becomes the only
 * root.
 */
function isComplete(text: string, root: MountLine | undefined): boolean {
  const roots = [...text.matchAll(/^\d+ \d+ (\S+) (\S+) \/ /gm)];
  const isNew = roots[0]?.[2] === '/newroot' && roots[0][1] !== root?.device;
  return isNew && roots.length === 1 && !/^\d+ \d+ \S+ \S+ \/(?:old|new)root[/ ]/m.test(text);
}

/**
 * Throws SANDBOX_UNAVAILABLE unless each mount of the plan exists exactly once, shows the file that was checked, and no
 * other mount lies inside the plan's paths. mountinfo identifies the mountpoint and source by the files themselves, so
 * it detects a path that was swapped and swapped back. `host`: the mounts of this process.
 */
export function checkMounts(
  { mounts: planned, masks }: Pick<SandboxPlan, 'mounts' | 'masks'>,
  host: readonly MountLine[],
  mounts: readonly MountLine[],
): void {
  const expected = expectedOf(planned, host);
  const readOnly = new Set(planned.filter(({ writable }) => !writable).map(({ to }) => to));
  const [missing, missingMasks] = [new Set(planned.map(({ to }) => to)), new Set(masks)];
  for (const line of mounts) {
    const { at } = line;
    const left = expected.get(keyOf(line)) ?? 0;
    if (left > 0) {
      expected.set(keyOf(line), left - 1);
      if (readOnly.has(at) && !line.isReadOnly) throw replacedMountError();
      missing.delete(at);
    } else if (!missingMasks.delete(at) && !STANDARD.test(at) && planned.some(({ to }) => isPathWithin(at, to)))
      throw replacedMountError();
  }
  if (missing.size > 0 || missingMasks.size > 0) throw replacedMountError();
}

/** Counts the expected mounts: those of the plan, and those that the host has inside them. */
function expectedOf(planned: SandboxPlan['mounts'], host: readonly MountLine[]): Map<string, number> {
  const expected = new Map<string, number>();
  const add = (line: Parameters<typeof keyOf>[0]): unknown =>
    expected.set(keyOf(line), (expected.get(keyOf(line)) ?? 0) + 1);
  for (const { from, real = from, to } of planned) {
    const mount = mountOf(real, host);
    if (mount !== undefined) add({ ...mount, root: join(mount.root, restOf(real, mount.at)), at: to });
    for (const line of host)
      if (line.at !== real && isPathWithin(line.at, real)) add({ ...line, at: join(to, restOf(line.at, real)) });
  }
  return expected;
}

/**
 * Returns the mount that contains a path of the host. Starts at the root and follows the nearest mountpoint on the
 * path.
 */
function mountOf(file: string, host: readonly MountLine[]): MountLine | undefined {
  const onTheWay = host.filter(({ at }) => isPathWithin(file, at));
  const ids = new Set(onTheWay.map(({ id }) => id));
  let mount = onTheWay.find(({ parent, id }) => parent === id || !ids.has(parent));
  for (let next = mount; next !== undefined; ) {
    mount = next;
    const { id } = next;
    next = onTheWay
      .filter((line) => line.parent === id && line.id !== id)
      .sort((one, other) => one.at.length - other.at.length)[0];
  }
  return mount;
}

function keyOf({ device, root, at }: Pick<MountLine, 'device' | 'root' | 'at'>): string {
  return `${device}\0${root}\0${at}`;
}

/** Returns the part of a path after a folder that contains it: empty, or beginning with a slash. */
function restOf(file: string, folder: string): string {
  return folder === '/' ? (file === '/' ? '' : file) : file.slice(folder.length);
}

function join(folder: string, rest: string): string {
  return folder === '/' && rest !== '' ? rest : `${folder}${rest}`;
}

/** mountinfo writes space, tab, line feed and backslash as octal numbers. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** Returns the error for a sandbox whose mounts are not the files that were checked. */
export function replacedMountError(): TollgateError {
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'A folder was moved or replaced while the sandbox was set up. Nothing was started.',
    next: 'Call again. If it fails again, a program keeps replacing folders of this workspace: end that program.',
  });
}
