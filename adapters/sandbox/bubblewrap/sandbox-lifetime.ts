/**
 * Watches the mounts of a sandbox, and tells when it has ended. A mount closes a name to a program. The kernel removes the mount when the owner's
 * git, an editor or another sandbox removes or replaces the name (mount_namespaces(7)). Then the sandbox is killed.
 */
import type { ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../closed-paths/closed-paths.ts';
import { hasEnded, type ProcessIdentity } from '../process-tree.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';
import { type MountLine, parseMounts } from './mount-check.ts';

/** Milliseconds between two looks at the mounts. */
const LOOK_MS = 100;
/** Milliseconds between two looks at a sandbox that is ending. */
const END_MS = 1;
const CHUNK_BYTES = 64 * 1024;

/** The mounts of one sandbox. They can be read after its end too: the open file keeps them. */
class Mounts {
  readonly #file: number;
  /** Number of each mount that closes something, and its place. */
  readonly #closing: ReadonlyMap<string, string>;
  #text = '';

  constructor(first: number, { mounts, masks }: Pick<SandboxPlan, 'mounts' | 'masks'>, standing: readonly MountLine[]) {
    const writable = mounts.filter((mount) => mount.writable).map(({ to }) => to);
    const closed = new Set([
      ...masks,
      ...mounts
        .filter(
          (mount) =>
            !mount.writable && writable.some((folder) => folder !== mount.to && isPathWithin(mount.to, folder)),
        )
        .map(({ to }) => to),
    ]);
    this.#closing = new Map(standing.filter(({ at }) => closed.has(at)).map(({ id, at }) => [id, at]));
    try {
      this.#file = openSync(`/proc/${first}/mountinfo`, 'r');
    } catch (cause) {
      throw new TollgateError('SANDBOX_UNAVAILABLE', {
        detail: 'The mounts of the sandbox cannot be watched. Nothing was started.',
        next: 'Call again; if it fails again, raise the limit of open files of Tollgate.',
        cause,
      });
    }
  }

  /** Places that are not closed any more. */
  lost(): readonly string[] {
    let text: string;
    try {
      text = this.#read();
    } catch {
      // What cannot be read may be gone.
      return [...this.#closing.values()];
    }
    if (text === this.#text) return [];
    this.#text = text;
    const places = new Map(parseMounts(text).map(({ id, at }) => [id, at]));
    return [...this.#closing].filter(([id, at]) => places.get(id) !== at).map(([, at]) => at);
  }

  close(): void {
    closeSync(this.#file);
  }

  #read(): string {
    const parts: Buffer[] = [];
    for (let from = 0; ; from += parts.at(-1)?.length ?? 0) {
      const room = Buffer.allocUnsafe(CHUNK_BYTES);
      const count = readSync(this.#file, room, 0, CHUNK_BYTES, from);
      if (count === 0) return Buffer.concat(parts).toString('utf8');
      parts.push(room.subarray(0, count));
    }
  }
}

/** What a lifetime works with. */
export interface SandboxLifetimeParts {
  readonly child: ChildProcess;
  /** Gets the places whose mounts did not stay to the end. */
  readonly lost: Set<string>;
  /** Frees what was held for it, once nothing of it runs. */
  readonly release: () => void;
}

/** One sandbox from its start on. */
export class SandboxLifetime {
  readonly #parts: SandboxLifetimeParts;
  #first: ProcessIdentity | undefined;
  #mounts: Mounts | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Places that were open to the program in the end. It was ended for that. */
  readonly opened = new Set<string>();
  /** Resolves when nothing of it runs, and what was held for it is free. */
  readonly ended: Promise<void>;

  constructor(parts: SandboxLifetimeParts) {
    this.#parts = parts;
    this.ended = new Promise((resolve) => parts.child.once('exit', resolve).once('error', resolve)).then(() =>
      this.#end(),
    );
  }

  /** Watches the mounts from now on: they were checked, and nothing runs. `kill` ends the sandbox at once. */
  watch(
    first: ProcessIdentity,
    plan: Pick<SandboxPlan, 'mounts' | 'masks'>,
    { standing, kill }: { readonly standing: readonly MountLine[]; readonly kill: () => void },
  ): void {
    this.#first = first;
    this.#mounts = new Mounts(first.pid, plan, standing);
    this.#timer = setInterval(() => {
      if (this.looks()) kill();
    }, LOOK_MS).unref();
  }

  /** True when something is not closed any more. */
  looks(): boolean {
    for (const at of this.#mounts?.lost() ?? []) {
      this.#parts.lost.add(at);
      // In a folder that is gone with it, such as a repository that was removed, there is nothing to open.
      if (existsSync(path.dirname(at))) this.opened.add(at);
    }
    return this.opened.size > 0;
  }

  async #end(): Promise<void> {
    // bubblewrap may be gone before the processes inside, which die with it.
    while (this.#first !== undefined && !hasEnded(this.#first)) await sleep(END_MS, undefined, { ref: false });
    clearInterval(this.#timer);
    this.looks();
    this.#mounts?.close();
    this.#parts.release();
  }
}
