/** Compares the mounts of a sandbox with its plan before anything runs in it: bubblewrap resolves every name again, and a program that runs already may swap names. */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../closed-paths/closed-paths.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';

/** A line of /proc/PID/mountinfo (proc_pid_mountinfo(5)). */
export interface MountLine {
  readonly id: string;
  readonly parent: string;
  /** The file system, as major:minor. */
  readonly device: string;
  /** The mounted folder or file within its file system. */
  readonly root: string;
  /** Where it is mounted, as the process sees it. */
  readonly at: string;
  readonly isReadOnly: boolean;
}

/** Milliseconds between two looks, and how many times the cost of the last look is added. */
const LOOK_MS = 1;
const LOOK_SHARE = 20;
/** Places that each sandbox has, whatever it is given. */
const OURS = /^\/(?:etc|proc|dev)\//;

/** Parses mountinfo. Pure. */
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

/** Waits until all of a sandbox is mounted, and gives its mounts. `first` is its first process, which waits. Ends without an answer when `signal` fires. */
export async function waitForMounts(
  first: number,
  host: readonly MountLine[],
  signal: AbortSignal,
): Promise<readonly MountLine[]> {
  const root = host.findLast(({ at }) => at === '/');
  while (!signal.aborted) {
    const began = performance.now();
    const text = textOf(first);
    if (isComplete(text, root)) return parseMounts(text);
    await sleep(LOOK_MS + LOOK_SHARE * (performance.now() - began));
  }
  return [];
}

/** The mounts of this process. */
export function ownMounts(): readonly MountLine[] {
  return parseMounts(textOf('self'));
}

/** Of these places, those at which a sandbox that this process can see has a mount. Other namespaces of this system are looked at, each once. */
export function mountedElsewhere(places: readonly string[]): ReadonlySet<string> {
  const wanted = new Set(places);
  const found = new Set<string>();
  const seen = new Set([undefined, namespaceOf('self')]);
  // Without /proc there is no sandbox with mounts.
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

/** Undefined for a process that has ended, or is another user's. */
function namespaceOf(pid: string): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`);
  } catch {
    return undefined;
  }
}

function textOf(pid: number | string): string {
  try {
    return readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
  } catch {
    return ''; // It has ended.
  }
}

/** bubblewrap mounts all beneath /newroot of a file system of its own. The last thing that it does is to make that folder the only root. */
function isComplete(text: string, root: MountLine | undefined): boolean {
  const roots = [...text.matchAll(/^\d+ \d+ (\S+) (\S+) \/ /gm)];
  const isNew = roots[0]?.[2] === '/newroot' && roots[0][1] !== root?.device;
  return isNew && roots.length === 1 && !/^\d+ \d+ \S+ \S+ \/(?:old|new)root[/ ]/m.test(text);
}

/**
 * Throws SANDBOX_UNAVAILABLE unless each mount of the plan stands in its place exactly once and shows what was judged, and no other
 * mount lies in what the plan gives. The kernel names place and source of a mount by their objects, so a name that was swapped
 * and swapped back does not pass. `host`: the mounts of this process.
 */
export function checkMounts(
  { mounts: planned, masks }: Pick<SandboxPlan, 'mounts' | 'masks'>,
  host: readonly MountLine[],
  mounts: readonly MountLine[],
): void {
  const expected = expectedOf(planned, host);
  const readOnly = new Set(planned.filter(({ writable }) => !writable).map(({ to }) => to));
  const [places, covers] = [new Set(planned.map(({ to }) => to)), new Set(masks)];
  for (const line of mounts) {
    const { at } = line;
    const left = expected.get(keyOf(line)) ?? 0;
    if (left > 0) {
      expected.set(keyOf(line), left - 1);
      if (readOnly.has(at) && !line.isReadOnly) throw replacedMountError();
      places.delete(at);
    } else if (!covers.delete(at) && !OURS.test(at) && planned.some(({ to }) => isPathWithin(at, to)))
      throw replacedMountError();
  }
  if (places.size > 0 || covers.size > 0) throw replacedMountError();
}

/** How often each mount may stand there: those of the plan, and with each of them what is mounted beneath it on the host. */
function expectedOf(planned: SandboxPlan['mounts'], host: readonly MountLine[]): Map<string, number> {
  const expected = new Map<string, number>();
  const add = (line: Parameters<typeof keyOf>[0]): unknown =>
    expected.set(keyOf(line), (expected.get(keyOf(line)) ?? 0) + 1);
  for (const { from, real = from, to } of planned) {
    const holder = holderOf(real, host);
    if (holder !== undefined) add({ ...holder, root: join(holder.root, restOf(real, holder.at)), at: to });
    for (const line of host)
      if (line.at !== real && isPathWithin(line.at, real)) add({ ...line, at: join(to, restOf(line.at, real)) });
  }
  return expected;
}

/** The mount that a path of the host lies in: from the root on, the nearest mountpoint on the way leads to the next mount. */
function holderOf(file: string, host: readonly MountLine[]): MountLine | undefined {
  const onTheWay = host.filter(({ at }) => isPathWithin(file, at));
  const ids = new Set(onTheWay.map(({ id }) => id));
  let holder = onTheWay.find(({ parent, id }) => parent === id || !ids.has(parent));
  for (let next = holder; next !== undefined; ) {
    holder = next;
    const { id } = next;
    next = onTheWay
      .filter((line) => line.parent === id && line.id !== id)
      .sort((one, other) => one.at.length - other.at.length)[0];
  }
  return holder;
}

function keyOf({ device, root, at }: Pick<MountLine, 'device' | 'root' | 'at'>): string {
  return `${device}\0${root}\0${at}`;
}

/** What is left of a path behind a folder that holds it: nothing, or a slash and names. */
function restOf(file: string, folder: string): string {
  return folder === '/' ? (file === '/' ? '' : file) : file.slice(folder.length);
}

function join(folder: string, rest: string): string {
  return folder === '/' && rest !== '' ? rest : `${folder}${rest}`;
}

/** Space, tab, line end and backslash stand as octal numbers. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** The refusal of a sandbox whose places are not those that were judged. */
export function replacedMountError(): TollgateError {
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: 'A folder changed its place while the sandbox was set up. Nothing was started.',
    next: 'Call again; if it stays so, a program keeps changing folders of this workspace: end it.',
  });
}
