/**
 * Watches the mounts of a sandbox until its end. A mount closes a path to the program. If the owner's git, an editor or
 * another sandbox removes or replaces the path, the kernel removes the mount (mount_namespaces(7)). Then the sandbox is
 * killed.
 */
import type { ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { hasEnded, type ProcessIdentity } from '../process-tree.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';
import { type MountLine, parseMounts } from './mount-check.ts';

/** Milliseconds between two checks of the mounts. */
const CHECK_MS = 100;
/** Milliseconds between two checks of a sandbox that is ending. */
const END_MS = 1;
const CHUNK_BYTES = 64 * 1024;

/** The closing mounts of one sandbox. They can be read after its end, because the file stays open. */
class ClosingMounts {
  readonly #file: number;
  /** The path of each mount that closes something, by the number of the mount. */
  readonly #closing: ReadonlyMap<string, string>;
  #text = '';

  constructor(
    first: number,
    { mounts: planned, masks }: Pick<SandboxPlan, 'mounts' | 'masks'>,
    mounts: readonly MountLine[],
  ) {
    const writable = planned.filter((mount) => mount.writable).map(({ to }) => to);
    const readOnly = planned.filter((mount) => !mount.writable).map(({ to }) => to);
    const closed = new Set([
      ...masks,
      ...readOnly.filter((at) => writable.some((folder) => folder !== at && isPathWithin(at, folder))),
    ]);
    this.#closing = new Map(mounts.filter(({ at }) => closed.has(at)).map(({ id, at }) => [id, at]));
    try {
      this.#file = openSync(`/proc/${first}/mountinfo`, 'r');
    } catch (cause) {
      throw new TollgateError('SANDBOX_UNAVAILABLE', {
        detail: 'The mounts of the sandbox cannot be watched. Nothing was started.',
        next: 'Call again. If it fails again, raise the limit of open files of Tollgate.',
        cause,
      });
    }
  }

  /** Returns the paths that are no longer closed. */
  lost(): readonly string[] {
    let text: string;
    try {
      text = this.#read();
    } catch {
      // Mounts that cannot be read count as lost.
      return [...this.#closing.values()];
    }
    if (text === this.#text) return [];
    this.#text = text;
    const present = new Map(parseMounts(text).map(({ id, at }) => [id, at]));
    return [...this.#closing].filter(([id, at]) => present.get(id) !== at).map(([, at]) => at);
  }

  close(): void {
    closeSync(this.#file);
  }

  #read(): string {
    const parts: Buffer[] = [];
    for (let from = 0; ; from += parts.at(-1)?.length ?? 0) {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      const count = readSync(this.#file, chunk, 0, CHUNK_BYTES, from);
      if (count === 0) return Buffer.concat(parts).toString('utf8');
      parts.push(chunk.subarray(0, count));
    }
  }
}

/** One sandbox from its start to its end. */
export class SandboxLifetime {
  readonly #lost: Set<string>;
  readonly #release: () => void;
  #first: ProcessIdentity | undefined;
  #mounts: ClosingMounts | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Closed paths that became open to the program. The sandbox was killed for this. */
  readonly opened = new Set<string>();
  /** Resolves when no process of the sandbox runs, after `release`. */
  readonly ended: Promise<void>;

  /** `lost` receives the paths whose mounts were removed. `release` is called once, when no process runs. */
  constructor(child: ChildProcess, lost: Set<string>, release: () => void) {
    this.#lost = lost;
    this.#release = release;
    this.ended = new Promise((resolve) => child.once('exit', resolve).once('error', resolve)).then(() => this.#end());
  }

  /** Watches the mounts, which were just checked, while nothing runs yet. `kill` must end the sandbox at once. */
  watch(
    first: ProcessIdentity,
    plan: Pick<SandboxPlan, 'mounts' | 'masks'>,
    { mounts, kill }: { readonly mounts: readonly MountLine[]; readonly kill: () => void },
  ): void {
    this.#first = first;
    this.#mounts = new ClosingMounts(first.pid, plan, mounts);
    this.#timer = setInterval(() => {
      if (this.checkClosedPaths()) kill();
    }, CHECK_MS).unref();
  }

  /** Returns true if a closed path is open now. */
  checkClosedPaths(): boolean {
    for (const at of this.#mounts?.lost() ?? []) {
      this.#lost.add(at);
      // If its folder was removed too, such as a whole repository, there is nothing to open.
      if (existsSync(path.dirname(at))) this.opened.add(at);
    }
    return this.opened.size > 0;
  }

  async #end(): Promise<void> {
    // bubblewrap can end before the processes inside, which the kernel then kills.
    while (this.#first !== undefined && !hasEnded(this.#first)) await sleep(END_MS, undefined, { ref: false });
    clearInterval(this.#timer);
    this.checkClosedPaths();
    this.#mounts?.close();
    this.#release();
  }
}
